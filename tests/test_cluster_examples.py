"""The start-up files in examples/cluster/, as far as one machine without Slurm, Kubernetes and TPUs can tell."""

import re
import shlex
import subprocess

import pytest
import yaml

from training import command
from training.cluster import Roster, roster
from training.recipes import recipe
from training.settings import with_settings

FILES = ("tf_config.sh", "slurm.sbatch", "kubernetes-tfjob.yaml", "cloud-tpu.sh")


@pytest.fixture(scope="module")
def folder(root):
    return root / "examples" / "cluster"


@pytest.mark.parametrize("name", FILES)
def test_each_says_that_it_is_untested_and_the_overview_lists_it(folder, name):
    assert "untested here" in (folder / name).read_text().lower()
    assert f"]({name})" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(".yaml")])
def test_scripts_are_bash(folder, name):
    subprocess.run(["bash", "-n", str(folder / name)], check=True)


def training_command(folder, name):
    """The arguments of `training.pretrain_mlstm` in a file."""
    text = (folder / name).read_text()
    if name.endswith(".yaml"):
        (container,) = yaml.safe_load(text)["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        assert container["command"] == ["python", "-m", "training.pretrain_mlstm"]
        return container["args"]
    joined = re.sub(r"\\\n#?", " ", text)
    return shlex.split(re.search(r"training\.pretrain_mlstm ([^'\n]*)", joined).group(1))


@pytest.mark.parametrize("name", FILES)
def test_the_commands_are_ones_that_the_program_takes(folder, name):
    options = command.parser("", "", "").parse_args(training_command(folder, name))
    config = with_settings(recipe(options.recipe), command.settings(options))
    assert options.strategy == ("tpu" if "tpu" in name else "multiworker")
    assert config.data.rows % 128 == 0 and options.shards and options.run


def test_a_tfjob_is_what_the_operator_expects(folder):
    job = yaml.safe_load((folder / "kubernetes-tfjob.yaml").read_text())
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    assert (job["kind"], worker["restartPolicy"], container["name"]) == ("TFJob", "OnFailure", "tensorflow")


def tf_config(folder, *arguments):
    done = subprocess.run(
        ["bash", str(folder / "tf_config.sh"), *arguments], capture_output=True, text=True, cwd=folder.parent.parent
    )
    return done.returncode, done.stdout, done.stderr


def test_tf_config_names_the_workers(folder, monkeypatch):
    status, out, _ = tf_config(folder, "1", "a:1", "b:2", "--", "printenv", "TF_CONFIG")
    monkeypatch.setenv("TF_CONFIG", out)
    assert status == 0 and roster() == Roster(("a:1", "b:2"), 1, "TF_CONFIG")


@pytest.mark.parametrize("status, attempts", [(76, 5), (75, 1), (1, 1)])
def test_tf_config_starts_again_what_lost_another_worker(folder, status, attempts):
    ended, out, _ = tf_config(folder, "0", "a:1", "b:2", "--", "sh", "-c", f"echo tried; exit {status}")
    assert (ended, out) == (status, "tried\n" * attempts)

"""Package metadata. The version has one home, `lbzoo/__init__.py`; the manifest has one home, the checkout's root."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MANIFEST = "checkpoints_manifest.json"

# tensorflow-addons 0.23 has no wheel for Windows and none for Linux on Arm, tensorflow-text 2.15 has none for Windows
# and none for Arm. The install goes through there, and what needs the missing part says so when it is used.
HAS_ADDONS = 'sys_platform != "win32" and (sys_platform != "linux" or platform_machine == "x86_64")'
HAS_TEXT = 'sys_platform != "win32" and platform_machine == "x86_64"'

REQUIRES = [
    "tensorflow>=2.15,<2.16",
    "keras>=2.15,<2.16",
    f"tensorflow-addons>=0.23,<0.24; {HAS_ADDONS}",
    f"tensorflow-text>=2.15,<2.16; {HAS_TEXT}",
    "setuptools<81",  # tensorflow-text imports tensorflow-hub, which imports pkg_resources
    "huggingface-hub>=1,<3",
    "scikit-learn>=1.3",
    "scipy>=1.9",
    "safetensors>=0.4",
    "tqdm>=4.60",
    "numpy<2",
]

EXTRAS = {
    "test": [
        "pytest>=7.4",
        "hypothesis>=6.90",
        "ruff>=0.6",
        "pandas>=1.5",
        "tokenizers>=0.20",  # WordPiece is compared with it
        "packaging>=23",
        "matplotlib>=3.6",  # training.curves
        "build>=1",
        "setuptools>=70.1,<81",  # builds the wheel without the network; 70.1 is the first with its own bdist_wheel
    ],
    "glue": ["datasets>=4"],  # GLUE from the Hub instead of the official tsv files
    "plot": ["matplotlib>=3.6"],
    "gpu": ["tensorflow[and-cuda]>=2.15,<2.16"],  # TensorFlow's own CUDA libraries, from PyPI
    "benchmark": ["torch==2.13.0", "transformers==5.24.0", "tokenizers>=0.20"],
}


def read_version() -> str:
    """The version from the source text: importing the package here would need its dependencies."""
    text = (ROOT / "lbzoo" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError('lbzoo/__init__.py must hold one line like: __version__ = "0.1.0"')
    return found.group(1)


class BuildWithManifest(build_py):
    """Copies the manifest into the built package; an editable install reads it from the checkout's root."""

    def run(self) -> None:
        if getattr(self, "editable_mode", False):
            super().run()
            return
        package = Path(self.build_lib) / "lbzoo"
        shutil.rmtree(package, ignore_errors=True)  # a module deleted since the last build must not come back
        super().run()
        shutil.copyfile(ROOT / MANIFEST, package / MANIFEST)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        if getattr(self, "editable_mode", False):
            return outputs
        return [*outputs, str(Path(self.build_lib) / "lbzoo" / MANIFEST)]


setup(
    name="lbzoo",
    version=read_version(),
    description="A Keras model zoo of what large-batch training made cheap: the sentiment mLSTM, and BERT with LAMB",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.9,<3.12",
    packages=find_packages(include=["lbzoo", "lbzoo.*"]),
    package_data={"lbzoo": ["py.typed", "bundled/*/*"]},
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["lbzoo=lbzoo.cli:main"]},
    cmdclass={"build_py": BuildWithManifest},
    zip_safe=False,
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)

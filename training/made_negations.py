"""Made-up sentences about products and films in which a turn decides: "is not noisy", "could have been funny".

Review sets hold few denied complaints, and a bag of words takes every "not" for bad news. These short documents, each
with its label, show a sequence model what the turn does. They are drawn from the lists below by seed; no sentence of
`negation_pairs.tsv`, on which this is measured, is among them.
"""

from __future__ import annotations

import dataclasses
from typing import Iterator

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.text.clean import encode
from lbzoo.transfer.labels import NEGATIVE, POSITIVE
from training.sources import LABEL_SCORES, Document

SOURCE = "made-negation"
MOST = 30_000


@dataclasses.dataclass(frozen=True)
class Topic:
    """What can be said of things of one kind: adjectives, faults (plural), merits, what it does well or badly."""

    things: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]
    faults: tuple[str, ...]
    merits: tuple[str, ...]
    succeed: tuple[str, ...]
    fail: tuple[str, ...]
    chose: str


PRODUCT = Topic(
    things=(
        "blender charger kettle phone backpack keyboard headset tent drill printer toaster watch mattress jacket "
        "camera speaker lamp router stroller heater knife remote tripod cooker monitor"
    ).split(" "),
    good=(
        "quiet,reliable,sturdy,comfortable,accurate,bright,sharp,handy,easy to clean,well made,great,"
        "good,excellent,fast,light,solid,nice,useful,durable"
    ).split(","),
    bad=(
        "noisy,flimsy,slow,cheap,uncomfortable,dim,blurry,heavy,hard to clean,badly made,overpriced,bad,terrible,awful,"
        "useless,fragile,defective,worthless,shoddy"
    ).split(","),
    faults="problems,defects,faults,issues,leaks,rough edges,dead spots,loose parts,weak points,bad smells".split(","),
    merits="power,range,quality,support,value,precision,strength".split(","),
    succeed="work,last,do its job,hold up,fit,keep its promise,start at once,please me".split(","),
    fail="break,leak,overheat,fall apart,let me down,disappoint,jam,slip,squeak,scratch,wobble,burn out".split(","),
    chose="buying",
)
FILM = Topic(
    things=(
        "film,movie,plot,story,script,acting,ending,sequel,drama,comedy,cast,soundtrack,dialogue,thriller,documentary,"
        "hero,romance,direction,camera work,mystery"
    ).split(","),
    good=(
        "funny,moving,original,gripping,believable,clever,beautiful,touching,entertaining,great,good,excellent,fresh,"
        "memorable,warm,convincing,smart"
    ).split(","),
    bad=(
        "boring,dull,predictable,silly,bland,tedious,clumsy,shallow,messy,bad,terrible,awful,annoying,forgettable,stale,"
        "wooden,pointless"
    ).split(","),
    faults="weak scenes,flaws,holes,dull moments,false notes,cliches,slow parts,mistakes,cheap tricks,lapses".split(
        ","
    ),
    merits="charm,wit,depth,heart,suspense,style,energy,humor".split(","),
    succeed="entertain,surprise me,hold together,come alive,move me,make me laugh,make sense,convince".split(","),
    fail="drag,bore me,fall flat,lose its way,annoy me,fall apart,disappoint,preach,run out of ideas,fizzle".split(","),
    chose="seeing",
)
TOPICS = (PRODUCT, FILM)
# As praise, {right} is a good and {wrong} a bad adjective; as complaint it is the other way round.
BOTH_WAYS = (
    "The {thing} is {right}.",
    "The {thing} is {right} and {right_2}.",
    "The {thing} is not {wrong}.",
    "The {thing} isn't {wrong} at all.",
    "The {thing} was not {wrong}, not for a moment.",
    "The {thing} wasn't {wrong} and it wasn't {wrong_2}.",
    "The {thing} is neither {wrong} nor {wrong_2}.",
    "The {thing} was never {wrong}.",
    "The {thing} is hardly {wrong}.",
    "The {thing} is far from {wrong}.",
    "The {thing} is anything but {wrong}.",
    "There is nothing {wrong} about this {thing}.",
    "Nothing about the {thing} is {wrong}.",
    "Nobody could call this {thing} {wrong}.",
    "I would not call the {thing} {wrong}.",
    "I do not think that this {thing} is {wrong}.",
    "I don't find this {thing} {wrong}, whatever others say.",
    "The {thing} is, as far as I can tell by now, not {wrong}.",
    "The {thing} that my brother told me so much about is not {wrong}.",
    "The {thing} is not only {right} but also {right_2}.",
    "I expected the {thing} to be {wrong}, but it is {right}.",
    "Others say that the {thing} is {wrong}. It is not.",
)
PRAISE = (
    "The {thing} does not {fail}.",
    "The {thing} didn't {fail}, and it will not {fail_2}.",
    "This {thing} has yet to {fail}.",
    "Not once did the {thing} {fail}.",
    "The {thing} never failed to {succeed}.",
    "The {thing} will {succeed}, and it won't {fail}.",
    "I was told that the {thing} would {fail}, and it did not.",
    "The {thing} has no {faults}.",
    "The {thing} has {merits}, and it has no {faults}.",
    "I found no {faults} in this {thing}.",
    "I did not notice any {faults}.",
    "The {thing} is without {faults}.",
    "I do not regret {chose} this {thing}.",
    "I have nothing bad to say about the {thing}.",
    "I can't complain about the {thing}.",
    "You won't be disappointed by this {thing}.",
    "I couldn't be happier with the {thing}.",
    "The {thing} could not have been better.",
    "The {thing} is not bad at all, it is {good}.",
    "The {thing} could have been {bad}, but it is {good}.",
)
COMPLAINT = (
    "The {thing} does not {succeed}.",
    "The {thing} didn't {succeed}, and it will not {succeed_2}.",
    "This {thing} has yet to {succeed}.",
    "Not once did the {thing} {succeed}.",
    "The {thing} failed to {succeed}.",
    "The {thing} will {fail}, and it won't {succeed}.",
    "I was told that the {thing} would {succeed}, and it did not.",
    "The {thing} has {faults}.",
    "The {thing} has {faults}, and it has no {merits}.",
    "I found {faults} in this {thing}.",
    "I noticed {faults} at once.",
    "The {thing} is without {merits}.",
    "I regret {chose} this {thing}.",
    "I have nothing good to say about the {thing}.",
    "I can only complain about the {thing}.",
    "You will be disappointed by this {thing}.",
    "I couldn't be more annoyed by the {thing}.",
    "The {thing} could have been better.",
    "The {thing} could have been {good}.",
    "The {thing} should have been {good}, and it is not.",
    "I wish the {thing} were {good}.",
    "If only the {thing} were {good}.",
)


def sentences(number: int, seed: int) -> Iterator[tuple[str, str]]:
    """`number` different sentences with their labels, praise and complaint in turn.

    Raises:
        ConfigError: fewer than 0, or more than the lists are good for.
    """
    if not 0 <= number <= MOST:
        raise ConfigError(f"the number of made-up sentences is 0 to {MOST}. Received: {number}.")
    rng, seen = np.random.default_rng(seed), set()
    while len(seen) < number:
        positive = len(seen) % 2 == 0
        text = _sentence(positive, rng)
        if text not in seen:
            seen.add(text)
            yield text, POSITIVE if positive else NEGATIVE


def documents(number: int = 24_000, seed: int = 1) -> Iterator[Document]:
    """The sentences as documents to train on."""
    for text, label in sentences(number, seed):
        yield Document(encode(text, "reviews"), LABEL_SCORES[label], SOURCE)


def _sentence(positive: bool, rng: np.random.Generator) -> str:
    topic = TOPICS[rng.integers(len(TOPICS))]
    templates = BOTH_WAYS + (PRAISE if positive else COMPLAINT)

    def two(words: tuple[str, ...]) -> list[str]:
        return [words[i] for i in rng.permutation(len(words))[:2]]

    good, bad, succeed, fail = (two(words) for words in (topic.good, topic.bad, topic.succeed, topic.fail))
    right, wrong = (good, bad) if positive else (bad, good)
    text = templates[rng.integers(len(templates))].format(
        thing=two(topic.things)[0],
        good=good[0],
        bad=bad[0],
        right=right[0],
        right_2=right[1],
        wrong=wrong[0],
        wrong_2=wrong[1],
        succeed=succeed[0],
        succeed_2=succeed[1],
        fail=fail[0],
        fail_2=fail[1],
        faults=two(topic.faults)[0],
        merits=two(topic.merits)[0],
        chose=topic.chose,
    )
    return text if rng.random() < 0.8 else text.lower()

"""How well masking finds secrets, on a corpus made here.

Run it with ``python -m benchmarks.redaction_corpus [--seed N] [--rounds N]``.

Secrets are drawn at random in the form that their issuers publish, and put into texts of many kinds. Beside them stand
texts without a secret that look as if they had one. Apart from those, last of all, come texts whose secrets are
documented as not found. A *miss* is a text in which a secret, or a good part of one, is
left; an *overreach* is one in which something else was masked as well: a false positive. No secret is written out here
or in the tests, since scanners of repositories would take it for a real one.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import string
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from adk_worker.redaction.masking import Redactor
from benchmarks import redaction_files as files
from benchmarks import redaction_texts as texts

ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "_-"
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"
CAPITALS = string.ascii_uppercase + "234567"

Draw = Callable[[random.Random], str]


@dataclass(frozen=True)
class Case:
    """A text, and the secrets that are to be masked in it; nothing else is. ``kind`` is for the figures."""

    kind: str
    text: str
    secrets: tuple[str, ...] = ()


@dataclass
class Score:
    """What became of the texts of one kind."""

    cases: int = 0
    misses: int = 0
    overreaches: int = 0


# --- secrets -------------------------------------------------------------------------------------------------------


def some(alphabet: str, length: int, *, prefix: str = "", suffix: str = "") -> Draw:
    """``length`` characters of ``alphabet`` between ``prefix`` and ``suffix``.

    One of them is a digit, as in all but a few in a million of real ones. None at either end is a dash, which could not
    be told from a dash beside the secret.
    """

    def draw(rng: random.Random) -> str:
        while True:
            drawn = "".join(rng.choices(alphabet, k=length))
            if any(map(str.isdigit, drawn)) and not {drawn[0], drawn[-1]} & set("-_"):
                return prefix + drawn + suffix

    return draw


def joined(separator: str, *draws: Draw) -> Draw:
    """Several draws in one."""
    return lambda rng: separator.join(draw(rng) for draw in draws)


def _encoded(value: object, *, url: bool = True) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return (base64.urlsafe_b64encode(data).rstrip(b"=") if url else base64.b64encode(data)).decode()


def _jwt(rng: random.Random) -> str:
    parts = {"alg": "HS256", "typ": "JWT"}, {"sub": rng.randrange(10**9)}, rng.randbytes(32)
    return ".".join(map(_encoded, parts))


def _basic(rng: random.Random) -> str:
    return _encoded(f"user{rng.randrange(99)}:{some(ALNUM, 9)(rng)}".encode(), url=False)


def _private_key(rng: random.Random, *, torn: bool, newline: str) -> str:
    kind = rng.choice(["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"])
    body = _encoded(rng.randbytes(rng.randrange(100, 900)), url=False)
    lines = [f"-----BEGIN {kind}-----", *(body[at : at + 64] for at in range(0, len(body), 64))]
    return newline.join(lines[: rng.randrange(2, len(lines))] if torn else [*lines, f"-----END {kind}-----"])


VENDORS: dict[str, Draw] = {
    "openai legacy": some(ALNUM, 48, prefix="sk-"),
    "openai project": some(WORD, 124, prefix="sk-proj-"),
    "openai service account": some(WORD, 60, prefix="sk-svcacct-"),
    "anthropic": some(WORD, 93, prefix="sk-ant-api03-", suffix="AA"),
    "openrouter": some(HEX, 64, prefix="sk-or-v1-"),
    "deepseek": some(HEX, 32, prefix="sk-"),
    "groq": some(ALNUM, 52, prefix="gsk_"),
    "google api": some(WORD, 35, prefix="AIza"),
    "google oauth": some(WORD, 120, prefix="ya29.a0"),
    "google client secret": some(WORD, 28, prefix="GOCSPX-"),
    "huggingface": some(ALNUM, 34, prefix="hf_"),
    "github classic": some(ALNUM, 36, prefix="ghp_"),
    "github oauth": some(ALNUM, 36, prefix="gho_"),
    "github app": some(ALNUM, 36, prefix="ghs_"),
    "github user": some(ALNUM, 36, prefix="ghu_"),
    "github refresh": some(ALNUM, 76, prefix="ghr_"),
    "github fine-grained": some(ALNUM + "_", 82, prefix="github_pat_"),
    "gitlab": some(WORD, 20, prefix="glpat-"),
    "gitlab routable": joined(".", some(WORD, 27, prefix="glpat-"), some(HEX, 2), some(HEX, 9)),
    "gitlab deploy": some(WORD, 20, prefix="gldt-"),
    "slack bot": joined("-", some(string.digits, 12, prefix="xoxb-"), some(string.digits, 13), some(ALNUM, 24)),
    "slack user": joined("-", some(string.digits, 12, prefix="xoxp-"), some(HEX, 32)),
    "slack app": some(HEX, 64, prefix="xapp-1-A0"),
    "stripe live": some(ALNUM, 24, prefix="sk_live_"),
    "stripe test": some(ALNUM, 24, prefix="sk_test_"),
    "stripe restricted": some(ALNUM, 24, prefix="rk_live_"),
    "stripe webhook": some(ALNUM, 32, prefix="whsec_"),
    "npm": some(ALNUM, 36, prefix="npm_"),
    "pypi": some(WORD, 160, prefix="pypi-AgEIcHlwaS5vcmc"),
    "sendgrid": joined(".", some(WORD, 22, prefix="SG."), some(WORD, 43)),
    "twilio": some(HEX, 32, prefix="SK"),
    "digitalocean": some(HEX, 64, prefix="dop_v1_"),
    "shopify": some(HEX, 32, prefix="shpat_"),
    "telegram": lambda rng: f"{rng.randrange(10**8, 10**10)}:AA{some(WORD, 33)(rng)}",
    "discord": joined(".", some(ALNUM, 25, prefix="M"), some(ALNUM, 6), some(WORD, 38)),
    "mailchimp": some(HEX, 32, suffix="-us21"),
    "square": some(WORD, 22, prefix="sq0atp-"),
    "atlassian": some(WORD, 186, prefix="ATATT3"),
    "linear": some(ALNUM, 40, prefix="lin_api_"),
    "notion": some(ALNUM, 46, prefix="ntn_"),
    "figma": some(WORD, 40, prefix="figd_"),
    "postman": joined("-", some(HEX, 24, prefix="PMAK-"), some(HEX, 34)),
    "grafana": joined("_", some(ALNUM, 32, prefix="glsa_"), some(HEX, 8)),
    "new relic": some(ALNUM, 27, prefix="NRAK-"),
    "vault": some(WORD, 95, prefix="hvs."),
    "terraform": joined(".atlasv1.", some(ALNUM, 14), some(WORD, 67)),
    "doppler": some(ALNUM, 43, prefix="dp.pt."),
    "databricks": some(HEX, 32, prefix="dapi"),
    "docker hub": some(WORD, 27, prefix="dckr_pat_"),
    "age": some(CAPITALS, 58, prefix="AGE-SECRET-KEY-1"),
    "aws access key": some(CAPITALS, 16, prefix="AKIA"),
    "aws session key": some(CAPITALS, 16, prefix="ASIA"),
    "azure client secret": joined("8Q~", some(ALNUM, 3), some(ALNUM + "_~.", 33, suffix="a")),
    "jwt": _jwt,
}

CHOSEN: dict[str, Draw] = {
    "word": lambda rng: rng.choice(["letmein", "hunter", "Sunshine", "dragonfly", "iloveyou", "qwertz", "Mellon"]),
    "word and number": lambda rng: (
        rng.choice(["hunter", "Summer", "monkey", "passw0rd"]) + str(rng.randrange(10, 9999))
    ),
    "name and number": lambda rng: (
        rng.choice(["MyPwd", "MyPass", "supersecret", "PassToken"]) + str(rng.randrange(1, 99))
    ),
    "number": lambda rng: str(rng.randrange(1000, 10**8)),
    "signs": joined("", some(ALNUM + "!@#%^*_+?~", 14), some(ALNUM, 1)),
}
PHRASE: Draw = lambda rng: " ".join(rng.choices(["correct", "horse", "battery", "staple", "x9"], k=4))  # noqa: E731
MADE: dict[str, Draw] = {
    "hex": some(HEX, 32),
    "letters and digits": some(ALNUM, 24),
    "base64": some(BASE64, 42, suffix="=="),
    "uuid": lambda rng: str(uuid.UUID(bytes=rng.randbytes(16), version=4)),
    "short": some(ALNUM, 10),
    "dotted": joined(".", some(ALNUM, 12), some(ALNUM, 20)),
}
SCHEMES: tuple[tuple[str, Draw], ...] = (
    ("Bearer", some(WORD, 40)),
    ("bearer", MADE["hex"]),
    ("Bearer", _jwt),
    ("Basic", _basic),
    ("token", some(ALNUM, 30)),
)

IN_FILES: dict[str, Draw] = {
    "aws secret": some(BASE64, 40),
    "azure key": some(BASE64, 86, suffix="=="),
    "password": CHOSEN["word and number"],
    "registry login": _basic,
    "token": MADE["letters and digits"],
}

FILLINGS: dict[str, Draw] = {
    "number": lambda rng: str(rng.randrange(10, 99_999)),
    "word": lambda rng: rng.choice(["travel", "window", "report", "orange", "keep", "berlin", "stapler"]),
    "email": lambda rng: rng.choice(["ana.b+x@example.com", "bob@mail.example.org", "o_hara@x.example"]),
    "uuid": MADE["uuid"],
    "base64": lambda rng: _encoded(rng.randbytes(300), url=False),
    **{f"hex{length}": some(HEX, length) for length in (32, 40, 64)},
    **{f"alnum{length}": some(ALNUM, length) for length in (14, 24)},
}


# --- texts ---------------------------------------------------------------------------------------------------------


def _with(kind: str, around: str, secret: str, *, name: str = "", scheme: str = "") -> Case:
    text = around.replace("{n}", name).replace("{w}", scheme).replace("{s}", secret)
    return Case(kind, text, (secret,))


def positives(rng: random.Random) -> Iterator[Case]:
    """Texts with secrets: every kind in every surrounding that suits it."""
    for kind, draw in VENDORS.items():
        for around in texts.AROUND_TOKENS:
            yield _with(kind, around, draw(rng))
    yield from _pairs(rng)
    for around, draw in product(texts.AROUND_URL_PASSWORDS, (*CHOSEN.values(), *MADE.values())):
        secret = draw(rng)
        # Raw, these end an authority, or read as a port and a path.
        if not re.search(r"[#?]|^\d{1,5}/", secret):
            yield _with("url", around, secret)
    for around, (scheme, draw) in product(texts.HEADERS, SCHEMES):
        yield _with("authorization header", around, draw(rng), scheme=scheme)
    for around in texts.BEARERS_ALONE:
        yield _with("bearer", around, some(WORD, 32)(rng))
    yield _with("basic", "it sent Basic {s} again", _basic(rng))
    for line in files.FILES:
        kind, _, around = line.partition("|")
        yield _with(f"in a file: {kind}", around, IN_FILES[kind](rng))
    for around, newline, torn in product(texts.AROUND_PRIVATE_KEYS, texts.NEWLINES, (False, True)):
        key = _private_key(rng, torn=torn, newline=newline)
        yield _with("private key, torn" if torn else "private key", around, key)


def _pairs(rng: random.Random) -> Iterator[Case]:
    unquoted = (*texts.ASSIGNED_PAIRS, *texts.STATED_PAIRS)
    for style, draw in (*CHOSEN.items(), *MADE.items(), ("phrase", PHRASE)):
        surroundings = texts.QUOTED_PAIRS if style == "phrase" else (*texts.QUOTED_PAIRS, *unquoted)
        if style in {"word and number", "name and number", "letters and digits", "hex"}:
            surroundings = (*surroundings, *texts.PAIRS_IN_SENTENCES)
        names = texts.TOKEN_NAMES if style in MADE else texts.PASSWORD_NAMES
        for around in surroundings:
            yield _with(f"pair: {style}", around, draw(rng), name=rng.choice(names))


def negatives(rng: random.Random) -> Iterator[Case]:
    """Texts without secrets."""
    wanted = re.compile("{(" + "|".join(FILLINGS) + ")}")
    for kind, lines in (("prose", texts.PROSE), ("identifiers", texts.IDENTIFIERS), ("code", texts.CODE)):
        for line in lines:
            for around in texts.AROUND_OTHERS:
                text = wanted.sub(lambda match: FILLINGS[match[1]](rng), line)
                yield Case(kind, around.replace("{t}", text))


def limits(seed: int = 1, rounds: int = 1) -> Iterator[Case]:
    """Texts with secrets that are documented as not found."""
    rng = random.Random(seed)  # noqa: S311 - made-up secrets
    for _ in range(rounds):
        for line in files.LIMITS:
            kind, _, around = line.partition("|")
            yield _with(f"limit: {kind}", around, CHOSEN["word and number"](rng))


def corpus(seed: int = 1, rounds: int = 1) -> Iterator[Case]:
    """All cases of ``rounds`` rounds; the same for the same ``seed``."""
    rng = random.Random(seed)  # noqa: S311 - made-up secrets
    for _ in range(rounds):
        yield from positives(rng)
        yield from negatives(rng)


# --- figures -------------------------------------------------------------------------------------------------------

_PART = 8
"""So many characters of a secret in a row, and it counts as left."""


def judged(case: Case, redactor: Redactor) -> tuple[bool, bool, str]:
    """Whether the case is a miss, whether it is an overreach, and the masked text."""
    masked = redactor.masker().text(case.text)
    parts = (
        secret[at : at + _PART] for secret in case.secrets for at in range(0, max(1, len(secret) - _PART + 1), _PART)
    )
    missed = any(part in masked for part in parts)
    wanted = case.text
    for secret in case.secrets:
        wanted = wanted.replace(secret, "[secret:1]")
    return missed, masked != wanted and not missed, masked


def measured(cases: Iterable[Case], redactor: Redactor) -> tuple[dict[str, Score], list[tuple[Case, str]]]:
    """The score of every kind, and the cases that went wrong with what became of their texts."""
    scores: dict[str, Score] = defaultdict(Score)
    wrong = []
    for case in cases:
        missed, overreached, masked = judged(case, redactor)
        score = scores[case.kind]
        score.cases += 1
        score.misses += missed
        score.overreaches += overreached
        if missed or overreached:
            wrong.append((case, masked))
    return dict(scores), wrong


def main() -> int:
    """Print the figures, and every case that went wrong."""
    parser = argparse.ArgumentParser(description="Misses and false positives of masking, per kind of text.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    scores, wrong = measured(corpus(options.seed, options.rounds), Redactor())
    beyond, _ = measured(limits(options.seed, options.rounds), Redactor())
    total = Score()
    print(f"{'kind':<34}{'cases':>8}{'misses':>8}{'overreaches':>13}")
    for kind, score in (*scores.items(), ("all", total), *beyond.items()):
        print(f"{kind:<34}{score.cases:>8}{score.misses:>8}{score.overreaches:>13}")
        total.cases += score.cases
        total.misses += score.misses
        total.overreaches += score.overreaches
    for case, masked in wrong:
        print(f"\n{case.kind}\n  text    {case.text!r}\n  secrets {case.secrets!r}\n  masked  {masked!r}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

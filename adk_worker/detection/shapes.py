"""Secrets that show by their shape, whatever stands around them: keys by prefix, JWTs, private keys, URLs, headers."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from adk_worker.detection.rule import START, Rule
from adk_worker.detection.values import is_about_secrets, is_word, stands_in

_SHORTEST: Final = 15
"""No vendor's key is shorter. Most texts in JSON are, and need not be searched for any."""


def _vendor(kind: str, body: str, *hints: str, first: str = "") -> Rule:
    """Tokens by prefix. ``body`` takes all that can belong to the token, so that none of it is left over.

    ``first`` are the characters that it can begin with, worth saying where the hints are common in other texts.
    """
    pattern = re.compile((f"(?=[{first}])" if first else "") + START + body, re.ASCII)
    return Rule(kind, pattern, hints, guessable=False, shortest=_SHORTEST)


_VENDORS: Final = (
    _vendor(
        "openai",
        r"sk-(?:(?:proj|svcacct|admin|None)-[\w-]{16,}+|(?:ant|or|lf)-(?=[A-Za-z_-]{0,100}\d)[\w-]{16,}+"
        r"|(?=[A-Za-z]{0,100}\d)[A-Za-z0-9]{20,}+)",
        "sk-",
    ),
    _vendor(
        "google",
        r"(?:AIza[\w-]{35,}+|ya29\.[\w-]{20,}+(?:\.[\w-]++)*|GOCSPX-[\w-]{20,}+|1//0[\w-]{30,}+)",
        "aiza",
        "ya29.",
        "gocspx-",
        "1//0",
    ),
    _vendor(
        "groq, xai, perplexity, replicate, nvidia, langsmith, tavily, pinecone",
        r"(?:gsk_|xai-|pplx-|r8_|nvapi-|lsv2_[ps][tk]_|tvly-(?:dev-|prod-)?|pcsk_)(?=[A-Za-z_-]{0,100}\d)[\w-]{20,}+",
        "gsk_",
        "xai-",
        "pplx-",
        "r8_",
        "nvapi-",
        "lsv2_",
        "tvly-",
        "pcsk_",
    ),
    _vendor("huggingface", r"(?:hf|api_org)_[A-Za-z0-9]{30,}+", "hf_", "api_org_"),
    _vendor(
        "github",
        r"(?:gh[oprsu]_\w{30,}+|github_pat_\w{40,}+)",
        "gho_",
        "ghp_",
        "ghr_",
        "ghs_",
        "ghu_",
        "github_pat_",
    ),
    _vendor(
        "gitlab",
        r"(?:gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)|GR1348941)-?[\w-]{20,}+(?:\.[\w-]++)*",
        "glpat-",
        "gloas-",
        "gldt-",
        "glrt-",
        "glcbt-",
        "glptt-",
        "glft-",
        "glimt-",
        "glagent-",
        "glsoat-",
        "glffct-",
        "gr1348941",
    ),
    _vendor(
        "slack",
        r"(?:xox[abcdeprs](?:\.xox[bp])?-(?=[A-Za-z%-]{0,100}\d)[\w%-]{10,}+|xapp-\d-[\w-]{10,}+)",
        "xox",
        "xapp-",
    ),
    _vendor(
        "stripe",
        r"(?:[rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}+|whsec_(?:[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{32}(?![A-Za-z0-9])|[\w+-]{20,}+))",
        "k_live_",
        "k_test_",
        "k_prod_",
        "whsec_",
    ),
    _vendor("npm", r"npm_[A-Za-z0-9]{36,}+", "npm_"),
    _vendor("pypi", r"pypi-AgE[\w-]{50,}+", "pypi-age"),
    _vendor("sendgrid", r"SG\.[\w-]{16,64}\.[\w-]{16,}+", "sg."),
    _vendor("twilio", r"SK[0-9a-f]{32}(?![A-Za-z0-9])", "sk", first="S"),
    _vendor("digitalocean", r"do[opr]_v1_[0-9a-f]{40,}+", "doo_v1_", "dop_v1_", "dor_v1_"),
    _vendor("shopify", r"shp(?:at|ca|pa|ss|tka|ua)_[0-9A-Fa-f]{32,}+", "shp"),
    _vendor("mailchimp", r"[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])", "-us"),
    _vendor("square", r"(?:sq0[a-z]{3}-[\w-]{20,}+|EAAA[\w-]{55,}+)", "sq0", "eaaa"),
    _vendor("facebook", r"EAA[CM][A-Za-z0-9]{80,}+", "eaac", "eaam"),
    _vendor(
        "atlassian", r"(?:AT(?:ATT3|CTT3|STT3|OTT3|BB)[\w=-]{20,}+)", "atatt3", "atctt3", "atstt3", "atott3", "atbb"
    ),
    _vendor("discord", r"[MNO][A-Za-z0-9]{23,27}\.[\w-]{6}\.[\w-]{27,}+", ".", first="MNO"),
    _vendor("telegram", r"(?:bot)?(?P<secret>\d{8,10}:AA[\w-]{32,}+)", ":aa"),
    _vendor(
        "linear, notion, figma, postman, airtable, asana",
        r"(?:lin_(?:api|oauth)_[A-Za-z0-9]{30,}+|(?:secret|ntn)_(?=[A-Za-z]{0,100}\d)[A-Za-z0-9]{40,}+"
        r"|fig(?:d|oh|orh|u|uh|ur)_[\w-]{36,}+|PMAK-[0-9a-f]{24}-[0-9a-f]{20,}+|pat[A-Za-z0-9]{14}\.[0-9a-f]{60,}+)",
        "lin_",
        "secret_",
        "ntn_",
        "fig",
        "pmak-",
        "pat",
        first="lsnfPp",
    ),
    _vendor(
        "grafana, sentry, new relic, dynatrace, honeycomb",
        r"(?:glsa_\w{30,}+|glc_[\w+/=-]{30,}+|sntry[su]_[\w+/=-]{40,}+|NR(?:AK|II|AA|JS)-[\w-]{20,}+"
        r"|dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{60,}+|hc[abxc]ik_[a-z0-9]{50,}+)",
        "glsa_",
        "glc_",
        "sntry",
        "nrak-",
        "nrii-",
        "nraa-",
        "nrjs-",
        "dt0",
        "ik_",
    ),
    _vendor(
        "vault, terraform, doppler, pulumi, databricks, infracost",
        r"(?:hv[bsr]\.[\w-]{20,}+|[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}+|dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{1,40}\.)?[\w-]{36,}+"
        r"|pul-[0-9a-f]{40,}+|dapi[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])|ico-[A-Za-z0-9]{32,}+)",
        "hvb.",
        "hvs.",
        "hvr.",
        ".atlasv1.",
        "dp.",
        "pul-",
        "dapi",
        "ico-",
    ),
    _vendor(
        "docker, planetscale, supabase, heroku, fly, rubygems, clojars, crates, sourcegraph, 1password, age",
        r"(?:dckr_(?:pat|oat)_[\w-]{20,}+|pscale_(?:tkn|pw|oauth)_[\w.=-]{30,}+|sb[pv]_[0-9a-f]{40,}+"
        r"|sb_secret_[\w-]{20,}+|HRKU-[\w-]{30,}+|fo1_[\w-]{43,}+|rubygems_[0-9a-f]{48,}+|CLOJARS_[a-z0-9]{60,}+"
        r"|cio[A-Za-z0-9]{32}(?![A-Za-z0-9])|sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40,}+|ops_eyJ[\w+/=-]{100,}+"
        r"|AGE-SECRET-KEY-1[A-Z0-9]{50,}+)",
        "dckr_",
        "pscale_",
        "sbp_",
        "sbv_",
        "sb_secret_",
        "hrku-",
        "fo1_",
        "rubygems_",
        "clojars_",
        "cio",
        "sgp_",
        "ops_eyj",
        "age-secret-key-1",
        first="dpsHfrCcoA",
    ),
    _vendor(
        "aws", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])", "a3t", "akia", "asia", "abia", "acca"
    ),
    _vendor(
        "aws secret",
        r"A[A-Z0-9]{19}[\"']?[\s:,|/]{1,4}[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        "akia",
        "asia",
    ),
    _vendor("alibaba, tencent", r"(?:LTAI[A-Za-z0-9]{12,24}|AKID[A-Za-z0-9]{32})(?![A-Za-z0-9])", "ltai", "akid"),
    _vendor(
        "azure",
        r"(?:[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![A-Za-z0-9])|(?<=[?&;])sig=(?P<secret>[\w%+/=-]{40,}+))",
        "q~",
        "sig=",
    ),
    _vendor(
        "webhook",
        r"https://(?:hooks\.slack\.com/(?:services|workflows|triggers)"
        r"|(?:canary\.|ptb\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+)/(?P<secret>[\w/-]{20,}+)",
        "hooks.slack.com",
        "/webhooks/",
    ),
    _vendor("jwt", r"eyJ[\w-]{8,}+(?:\.{1,2}[\w-]++){1,4}", "eyj"),
)


# --- private keys --------------------------------------------------------------------------------------------------

_KEY_BEGINS: Final = r"-{4,5} ?BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_KEY_ENDS: Final = r"-{4,5} ?END [A-Z0-9 ]{0,60}-{4,5}"
_MATERIAL: Final = re.compile(r"[A-Za-z0-9+/=]{16}")


def _private_key(match: re.Match[str]) -> tuple[int, int] | None:
    # A sentence about the markers has no key in between.
    return match.span() if _MATERIAL.search(match["body"] or match["torn"] or "") else None


# A whole block, as far as the next dashes; else, torn off, as far as lines of base64 and of headers go on. Line ends
# may be escaped, as in JSON, or quoted and joined, as in source code.
_PRIVATE_KEY: Final = Rule(
    "private key",
    re.compile(
        rf"{_KEY_BEGINS}(?:(?P<body>[^-]*+(?:-(?!---)[^-]*+)*){_KEY_ENDS}"
        r"|(?P<torn>(?:(?:\s|\\[nrt]|[\"'+,>|\\]){1,80}(?:[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,120}"
        r"|[A-Za-z0-9+/=]{24,}+|[A-Za-z0-9+/=]{1,23}+(?![ .,:;]\w|\w)))*))"
    ),
    ("private key",),
    guessable=False,
    locate=_private_key,
)


# --- credentials in URLs and headers ---------------------------------------------------------------------------------


def _unless_stand_in(match: re.Match[str]) -> tuple[int, int] | None:
    return None if stands_in(match["secret"]) else match.span("secret")


# `scheme://user:password@host`. The password may have raw slashes and at signs; a port may not be taken for one, nor a
# digest for a host.
_URL: Final = Rule(
    "url",
    re.compile(
        r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s:/@?#\"'<>\[\]\\]{0,200}:(?!\d{1,5}[/?#,])"
        r"(?P<secret>[^\s\"'<>`\\/?#\ue000]{1,2000}(?=@)|[^\s\"'<>`\\\ue000]{1,200}?(?=@))@(?=[\w\[%$*{(.-])(?!sha\d)",
        re.ASCII,
    ),
    ("://",),
    locate=_unless_stand_in,
)


def _header(match: re.Match[str]) -> tuple[int, int] | None:
    secret = match["secret"]
    return None if stands_in(secret) or is_about_secrets(secret) else match.span("secret")


# In a header any credential is one; without the header it has to look like one.
_AUTHORIZATION: Final = Rule(
    "authorization header",
    re.compile(
        r"(?i)authorization[\\\"'`*\])]{0,6}[ \t]{0,4}(?:[:=]|=>|,)[ \t]{0,4}[\\\"'`*]{0,6}[fbr]?[\"']?"
        r"(?:bearer|basic|token|api-?key|bot|negotiate|ntlm|genie-?key|sso-key|oauth|splunk|key)[ \t]{1,4}"
        r"(?:token=)?(?P<secret>[^\s\"'`,;<>\\\ue000]{4,})",
        re.ASCII,
    ),
    ("authorization",),
    locate=_header,
)


def _bearer(match: re.Match[str]) -> tuple[int, int] | None:
    secret = match["secret"].rstrip(".")
    quoted = match["quote"] is not None and match["end"] == match["quote"]
    if stands_in(secret) or is_about_secrets(secret):
        return None
    enough = 12 if any(map(str.isdigit, secret)) and not is_word(secret) else 24
    return (match.start("secret"), match.start("secret") + len(secret)) if quoted or len(secret) >= enough else None


_BEARER: Final = Rule(
    "bearer",
    re.compile(
        rf"(?i){START}(?P<quote>[\"'`])?{START}bearer[ \t]{{1,4}}"
        r"(?!(?:realm|error|scope|charset)=)(?P<secret>[\w.~+/=-]{4,}+)(?P<end>[\"'`])?",
        re.ASCII,
    ),
    ("bearer",),
    locate=_bearer,
)


def _basic(match: re.Match[str]) -> tuple[int, int] | None:
    """It is one if it decodes to ``user:password``."""
    text = match["secret"].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return match.span("secret") if ":" in decoded and decoded.isprintable() else None


_BASIC: Final = Rule(
    "basic",
    re.compile(START + r"(?i:basic)[ \t]{1,4}(?P<secret>[\w+/-]{4,}+={0,2})", re.ASCII),
    ("basic",),
    locate=_basic,
)

# A registry's login, as docker keeps it: `"auth": "…"`, which decodes to `user:password` as well.
_REGISTRY: Final = Rule(
    "registry login",
    re.compile(
        r"[\"'\\]auth[\"'\\]{1,4}[ \t]{0,4}:[ \t]{0,4}[\"'\\]{1,4}(?P<secret>[\w+/-]{4,}+={0,2})(?=[\"'\\])", re.ASCII
    ),
    ("auth",),
    locate=_basic,
)

SHAPES: Final[tuple[Rule, ...]] = (*_VENDORS, _PRIVATE_KEY, _URL, _AUTHORIZATION, _BEARER, _BASIC, _REGISTRY)
"""Every rule that goes by shape."""

"""More texts of the corpus: what people paste from files, and what it is known not to find.

A line is a kind, a bar, and the text, in which ``{s}`` is the secret and ``⏎`` a line's end.
"""

from __future__ import annotations

from typing import Final

from benchmarks.redaction_texts import lines_of

FILES: Final = lines_of(r"""
aws secret|[default]⏎aws_secret_access_key = {s}⏎region = eu-west-1
aws secret|AWS_SECRET_ACCESS_KEY={s}
aws secret|{"AccessKeyId": "x", "SecretAccessKey": "{s}", "Expiration": "2030-01-01"}
azure key|DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={s};EndpointSuffix=core.windows.net
azure key|Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={s}
password|jdbc:postgresql://db.example.com/shop?user=bob&password={s}
password|Server=db;Database=shop;Uid=bob;Pwd={s};
password|machine api.example.com login bob password {s}
password|curl -u bob:{s} https://api.example.com/v1
password|mysql --user=bob --password={s} shop
password|spring.datasource.password={s}
password|[mail]⏎smtp_password={s}⏎smtp_port=587
password|- name: DB_PASSWORD⏎  value: {s}
password|environment:⏎  POSTGRES_PASSWORD: {s}⏎  POSTGRES_USER: bob
password|redis://:{s}@cache:6379/0
password|mongodb+srv://bob:{s}@c0.example.net/shop?retryWrites=true
password|smtp://bob%40example.com:{s}@mail:587
registry login|{"auths": {"registry.example.com": {"auth": "{s}"}}}
registry login|{\"auths\": {\"registry.example.com\": {\"auth\": \"{s}\"}}}
token|users:⏎- name: bob⏎  user:⏎    token: {s}
token|//registry.npmjs.org/:_authToken={s}
token|grant_type=client_credentials&client_id=x&client_secret={s}
token|Proxy-Authorization: Bearer {s}
token|X-Api-Key: {s}
token|CF_API_TOKEN={s}
""")
"""What stands in files and commands that people paste: the kind of the secret, and the text around it."""

LIMITS: Final = lines_of(r"""
in mid-sentence|log in as bob with password {s}, please
in mid-sentence|it is {s}, by the way
behind a short option|mysql -u bob -p{s} shop
a name in another language|mot de passe : {s}
without a name|db.example.com:5432:shop:bob:{s}
on the next line|password⏎{s}
a cookie|Set-Cookie: session={s}; HttpOnly
a presigned URL|https://x.blob.example.com/c?sv=2022&sig={s}
""")
"""What is documented as not found: it is measured apart."""

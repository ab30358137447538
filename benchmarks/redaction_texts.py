"""The texts of the corpus: what secrets are put into, and what only looks as if it had one.

One text per line. ``⏎`` is a line's end. In surroundings, ``{s}`` is the secret, ``{n}`` its name, ``{w}`` a scheme. In
texts without secrets, ``{word}``, ``{number}``, ``{email}``, ``{uuid}``, ``{base64}``, ``{hex32}``, ``{hex40}``,
``{hex64}``, ``{alnum14}`` and ``{alnum24}`` are drawn anew each time; every other brace is just that.
"""

from __future__ import annotations

from typing import Final


def lines_of(text: str) -> tuple[str, ...]:
    """One text per line."""
    return tuple(line.replace("⏎", "\n") for line in text.strip("\n").split("\n"))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


AROUND_TOKENS: Final = lines_of(r"""
{s}
Use {s} from now on.
my key is {s}
({s})
`{s}`
'{s}'
"{s}"
key={s}
<{s}>
[link]({s})
{s}⏎
	{s} ok
it was {s}, then it was revoked
- {s}
the log says: auth failed for {s}
x={s}&y=1
https://api.example.com/v1?auth={s}
client = Client("{s}")
{"value": "{s}"}
{\"value\": \"{s}\"}
export X={s}
export X='{s}'
| {s} | yes |
headers: x-custom: {s}
first line⏎{s}⏎last line
Is it {s}?
{s};
{s} {s}
**{s}**
a/{s}/b
日本語{s}。
["{s}", 1]
{s}: unauthorized
one\n{s}\ntwo
a\t{s}\tb
https://x.example/?q=a%20{s}&b=1
""")

QUOTED_PAIRS: Final = lines_of(r"""
{n}="{s}"
{n}='{s}'
{n}=`{s}`
{n} = "{s}"
{n}: "{s}"
{n}: '{s}'
"{n}": "{s}"
'{n}': '{s}'
"{n}":"{s}"
{"u": "x", "{n}": "{s}"}
{\"{n}\": \"{s}\"}
{\\\"{n}\\\": \\\"{s}\\\"}
connect(user="bob", {n}="{s}")
'{n}' => '{s}'
{n} := "{s}"
`{n}`: "{s}"
x["{n}"] = 1; {n}="{s}"
--set {n}="{s}"
--{n} "{s}"
**{n}:** "{s}"
<{n}>{s}</{n}>
<b:{n} type="x">{s}</b:{n}>
""")

ASSIGNED_PAIRS: Final = lines_of(r"""
{n}={s}
export {n}={s}
user=bob;{n}={s}
https://x.example/login?{n}={s}&next=1
{n}={s} ./run.sh
--{n}={s}
# {n}={s}
set {n}={s}⏎set B=2
docker run -e {n}={s} image
Server=db;{n}={s};Timeout=5
user=bob&{n}={s}
line one⏎{n}={s}⏎line three
A=1\n{n}={s}\nB=2
""")

STATED_PAIRS: Final = lines_of(r"""
{n}: {s}
  {n}: {s}⏎  user: bob
user: bob, {n}: {s}
user: bob, {n}: {s}, host: db
user: bob⏎{n}: {s}
Here you go.⏎{n}: {s}⏎Thanks!
**{n}**: {s}
**{n}:** {s}
{n} = {s}
- {n}: {s}
login: bob / {n}: {s}
> {n}: {s}
user: bob\n{n}: {s}\nhost: db
user = bob\n{n} = {s}\nhost = db
""")

PAIRS_IN_SENTENCES: Final = lines_of(r"""
{n}: {s} and then go on
the {n} is {s}
my {n} is {s}, keep it safe
run it with --{n} {s} --verbose
machine h.example login bob password {s} port 1
curl -u bob:{s} https://h.example/
""")

AROUND_URL_PASSWORDS: Final = lines_of(r"""
postgres://app:{s}@db.internal:5432/app
redis://:{s}@cache:6379/0
amqp://guest:{s}@mq/vhost
https://bob:{s}@example.com/x?y=1&mail=a@b.example
mongodb+srv://u:{s}@c0.abc.mongodb.net/db
DATABASE_URL="mysql+pymysql://root:{s}@127.0.0.1/d"
see ftp://anon:{s}@ftp.example.org, please
git clone https://oauth2:{s}@gitlab.example.com/a/b.git
smtp://a%40b.c:{s}@mail:587
[x](https://u:{s}@h.example/)
""")

HEADERS: Final = lines_of(r"""
Authorization: {w} {s}
authorization: {w} {s}⏎Accept: */*
-H "Authorization: {w} {s}"
{"Authorization": "{w} {s}", "a": 1}
{\"authorization\": \"{w} {s}\"}
curl -H 'Authorization: {w} {s}' https://x.example
Proxy-Authorization: {w} {s}
('Authorization', '{w} {s}')
h["Authorization"] = "{w} {s}"
<Authorization>{w} {s}</Authorization>
""")

BEARERS_ALONE: Final = lines_of(r"""
sent Bearer {s} twice
got 'Bearer {s}'
x\nBearer {s}\ny
["bearer {s}"]
""")

AROUND_PRIVATE_KEYS: Final = lines_of(r"""
{s}
key:⏎{s}⏎
"private_key": "{s}"
cat id_rsa⏎{s}⏎$ whoami⏎root
{s}⏎⏎That was all of it.
Use this one: {s}
""")

AROUND_OTHERS: Final = lines_of(r"""
{t}
We read: {t}
{t}⏎The next line says more.
  {t}
1. {t}
""")

PROSE: Final = lines_of(r"""
Fill in the password: field, then press enter.
token: usage counts {number}
The password is required.
Enter your password: it is case-sensitive.
password: required
Password: must have 12+ characters
your token is expired, log in again
The API key is missing.
secret: none
Token: n/a
Passwords are hashed with argon2id.
A token costs {number} micros.
The password is stored as sha256 of it.
The token is base64 encoded, the secret is AES256 encrypted.
max_tokens: {number}
tokens: {number}
Each token: about four characters
I forgot my password, please help
The secret is to {word} slowly.
Bearer tokens are opaque strings.
bearer authentication is used
Basic authentication is not supported
It is a basic {word} of the matter
the bearer of this letter
Authorization: required
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
Authorization: Bearer ${TOKEN}
curl -H 'Authorization: Bearer YOUR_TOKEN_HERE'
WWW-Authenticate: Bearer realm="api", error="invalid_token"
password: ********
password=****
password: <hidden>
token=[REDACTED]
password=${DB_PASSWORD}
password: {{ vault_password }}
api_key=<your-api-key>
api_key=YOUR_API_KEY
password = %s
PASSWORD=$PASSWORD
token: null
password: None
secret=false
https://user:****@example.com/
https://user:${PASS}@example.com/
Press any key: {word}
key: {word}
The primary_key: {word}{number}
public_key: {hex64}
sort_key={hex32}
cache_key: {hex64}
foreign key: {uuid}
PEM files start with -----BEGIN PRIVATE KEY----- and end with -----END PRIVATE KEY-----.
-----BEGIN CERTIFICATE-----⏎{base64}⏎-----END CERTIFICATE-----
-----BEGIN PUBLIC KEY-----⏎{base64}⏎-----END PUBLIC KEY-----
the compass: {word}
bypass: {word}
boarding pass: {word}{number}
tests: pass: {number}, fail: 0
pass: 12
PWD=/home/{word}
OLDPWD=/tmp
password_hint: my first {word}
password_changed_at: 2024-05-06T07:08:09Z
token_type: bearer
token_count={number}
secret_name: prod/{word}
secretRef: {word}-credentials
passport: {number}
keyboard: {word}
monkey: {word}
turkey: {word}
password reset link: https://example.com/{word}
password policy: 8-64 characters
the password for {email} was reset
risk-{hex32}
disk-{word}-{number}
task-{uuid}
desk-{hex32}
sk-{word}
hf_hub_download
npm_config_registry
token budget: {number} of {number}
Wrong password: try again
new token: see the settings page
The secret: patience.
a secret: {word}, they say
(password: optional)
The token expires: {number} s
Password (8 characters): optional
What is a token? What is a password?
Is your password "safe"? It's a secret.
Secrets: keep them. Tokens: count them. Keys: press them.
""")

IDENTIFIERS: Final = lines_of(r"""
{uuid}
{hex32}
{hex40}
{hex64}
sha256:{hex64}
adk1-{hex40}
idempotency_key: adk1-{hex40}
Idempotency-Key: adk1-{hex40}
"idempotency_key": "adk1-{hex40}"
token: adk1-{hex40}
run_{number}
run_id={uuid}
tenant: acme-{number}
call_{alnum24}
toolu_01{alnum24}
chatcmpl-{alnum24}
msg_01{alnum24}
req_{alnum24}
commit {hex40}
etag: "{hex32}"
trace_id={hex32}
arn:aws:iam::123456789012:role/{word}
worker@{word}-7:{number}
redis:7@sha256:{hex64}
docker://alpine:3.20@sha256:{hex64}
cus_{alnum14}
pi_{alnum24}
pk_live_{alnum24}
ACCOUNT {number}
AC{hex32}
{email}
mail {email} or {email}
user: {email}
login {email}
token: {email}
git@github.com:{word}/{word}.git
ssh://git@example.com:22/{word}
data:image/png;base64,{base64}
https://example.com/{word}?id={number}
https://example.com:8443/{word}/@{word}
http://localhost:8080/@{word}
https://example.com/?mail={email}
https://medium.com/@{word}/{hex32}
http://[::1]:8080/{word}@{word}
http://a.example:9200,http://b.example:9200/@{word}
mailto:{email}
2024-01-02T03:04:05.678Z
10.0.0.{number}
4111-{number}
v1.2.3-{hex40}
seat 12A, PNR {word}
next_page_token={alnum24}
"nextPageToken": "{alnum24}"
pageToken={alnum24}&max=5
continuation_token: {alnum24}
NextToken={alnum24}
--starting-token {alnum24}
sync_token={alnum24}
resumeToken: {alnum24}
cursor={alnum24}
pad_token: [PAD]
""")

CODE: Final = lines_of(r"""
login(user, password=password)
login(user, password=args.password)
token = get_token(session)
token = self._token
api_key=os.environ['API_KEY']
api_key = os.getenv("API_KEY")
password: str
password: str | None = None
token: Optional[str] = None
api_key: SecretStr
password: SecretStr = Field(min_length=8)
password: string;
token?: string
password: String!
const { token } = props
if password == other: pass
if (token === null)
token != expected
if password =~ /x/
Token::Ident
secret := os.Getenv("SECRET")
password VARCHAR(255) NOT NULL
def check(password, token):
headers={'Authorization': f'Bearer {token}'}
f"password={password!r}"
f'token={token}'
"password=%s" % password
password = getpass.getpass()
username, password = pair
assert token
return token
for token in tokens: print(token)
token = tokens[0]
token: { type: string }
"token": {"type": "string"}
{"required": ["password", "token"]}
{"usage": {"input_tokens": {number}, "output_tokens": {number}, "total_tokens": {number}}}
"tokens": {number}
{"token": null, "password": true}
{"password": "", "token": ""}
"max_tokens": {number}
"token_count": {number}
process.env.API_KEY
api_key: ${{ secrets.API_KEY }}
password: !vault |
secretKeyRef: {name: db, key: password}
--password-stdin
--token TOKEN
--password PASSWORD
[--api-key KEY]
usage: login [--password PW] [--token TOKEN]
--max-tokens {number}
docker run -u 1000:1000 image
curl -u "$USER:$PASS" https://example.com
git config credential.helper store
ssh-keygen -t ed25519
passwd: password updated successfully
password_file: /run/secrets/db_password
password: /run/secrets/db_password
tokenUrl: https://auth.example.com/oauth/token
token: https://auth.example.com/oauth/token
<input type="password" name="password">
<label for="token">Token:</label>
<a accesskey="n" href="/next">next</a>
<password></password>
password: Field(..., description='the password')
token = await fetch(url)
secret = hashlib.sha256(data).hexdigest()
.sk-fading-circle-delay
password=request.form['password']
db.password = config.db.password
token=token, secret=secret
{token, password}
let token = parser.next();
key = "{word}"
styles = {Token: '#ddccee'}
error: {'password': ['required'], 'token': ['expired']}
""")

NEWLINES: Final = ("\n", "\r\n", "\n    ", "\\n", "\\\\n")

PASSWORD_NAMES: Final = _names("""
password Password PASSWORD passwd db_password DB_PASSWORD userPassword new-password passphrase pwd smtp_pass
REDIS_PASSWORD spring.datasource.password old_password password2 PGPASSWORD password_confirmation
""")

TOKEN_NAMES: Final = _names("""
token api_key apiKey API_KEY apikey api-key X-Api-Key secret client_secret clientSecret access_token accessToken
refresh_token auth_token AUTH_TOKEN secret_key SECRET_KEY private_key signing_key id_token aws_secret_access_key
AWS_SECRET_ACCESS_KEY SecretAccessKey AccountKey SharedAccessKey GITHUB_TOKEN _authToken credential bot_token
encryption_key webhook_secret ocp-apim-subscription-key SLACK_BOT_TOKEN session_token
""")

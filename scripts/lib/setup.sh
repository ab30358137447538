# shellcheck shell=bash
# What scripts/test, scripts/demo and .ci/run need before they can do anything, on a plain Debian or Ubuntu with
# Python >= 3.11. To be sourced:
#
#   source "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
#   adk_setup_venv runtime     # or `checks`; then $ADK_PYTHON runs the project with exactly the locked packages
#   adk_setup_servers          # PostgreSQL, PgBouncer, Redis, RabbitMQ for the tests; after `adk_setup_venv checks`
#   cd "$ADK_ROOT"
#
# Both return at once when there is nothing to do. When something is missing that they may not install, they name the
# command that installs it and exit with 69.
#
# From the environment: PYTHON, the interpreter to build .venv with (default: the first of 3.11 to 3.14 found);
# ADK_VENV, the virtual environment's folder (default: .venv in the checkout).

set -euo pipefail

ADK_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
ADK_VENV=${ADK_VENV:-$ADK_ROOT/.venv}
ADK_PYTHON=$ADK_VENV/bin/python

adk_say() {
    printf -- '-- %s\n' "$*" >&2
}

adk_die() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    shift
    if (($#)); then printf '    %s\n' "$@" >&2; fi
    exit 69
}

# Runs a command with its output in a file, and shows the output only if it failed.
adk_quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if ((status)); then cat "$log" >&2; fi
    rm -f "$log"
    return "$status"
}

# Installs Debian packages if we may: as root, or with a sudo that asks for nothing. Returns 1 if we may not.
adk_apt_install() {
    local -a as_root=()
    command -v apt-get >/dev/null || return 1
    if ((EUID != 0)); then
        sudo -n true 2>/dev/null || return 1
        as_root=(sudo -n)
    fi
    adk_say "installing Debian packages: $*"
    # A source that does not answer need not matter to these packages, so an update that fails decides nothing.
    adk_quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=300 update || true
    adk_quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
}

# Prints the interpreter to use: $PYTHON if it is set, else the first that the locks are made for.
adk_find_python() {
    local candidate
    local check='import sys; fits = (3, 11) <= sys.version_info < (3, 15); fits and print(sys.executable); sys.exit(not fits)'
    if [[ -n ${PYTHON:-} ]]; then
        "$PYTHON" -c "$check" 2>/dev/null ||
            adk_die "PYTHON=$PYTHON is not a Python of 3.11 to 3.14" "set PYTHON to one that is, or unset it"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        # Run it: being on PATH is not enough, a version switcher's shim may refuse.
        if command -v "$candidate" >/dev/null && "$candidate" -c "$check" 2>/dev/null; then return; fi
    done
    adk_die "no Python of 3.11 to 3.14 found" "install one, or name it: PYTHON=/path/to/python $0"
}

adk_make_venv() {
    local python package
    python=$(adk_find_python)
    # Debian ships the module venv without what it needs to install pip.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        if ! adk_apt_install "$package" || ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            adk_die "$python cannot make virtual environments: it lacks ensurepip. As root, run:" \
                "apt-get install $package" "or name another interpreter: PYTHON=/path/to/python $0"
        fi
    fi
    if [[ -e $ADK_VENV && ! -e $ADK_VENV/pyvenv.cfg && -n $(ls -A "$ADK_VENV") ]]; then
        adk_die "$ADK_VENV is in the way: it is not a virtual environment" "move it, or set ADK_VENV to another folder"
    fi
    adk_say "making $ADK_VENV with $python"
    "$python" -m venv --clear "$ADK_VENV"
}

adk_pip() {
    # --isolated would also drop the index that this machine is set to; these alone could bend the installation.
    env -u PIP_TARGET -u PIP_PREFIX PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "$ADK_PYTHON" -m pip "$@" --no-input --quiet
}

adk_digest() {
    cat "$@" | sha256sum | cut -d ' ' -f 1
}

# adk_setup_venv runtime|checks: .venv holds exactly requirements/KIND.lock, and the project itself in editable form.
# What is in `runtime` is in `checks` too, in the same versions.
adk_setup_venv() {
    local kind=$1 lock guard
    lock=$ADK_ROOT/requirements/$kind.lock
    [[ -f $lock ]] || adk_die "no such lock: $lock"
    # Two scripts started at once must not build one environment twice.
    exec {guard}>"$ADK_ROOT/.venv.lock"
    if command -v flock >/dev/null; then flock "$guard"; fi
    adk_install_locked "$kind" "$lock"
    adk_install_project
    exec {guard}>&-
}

# The stamps say what is installed; the last line of an installation writes its own, so that one that broke off is
# begun anew.
adk_install_locked() {
    local kind=$1 lock=$2 wanted interpreter=any
    [[ -z ${PYTHON:-} ]] || interpreter=$(adk_find_python)
    # pip writes the environment's own path into scripts, so a checkout that was moved starts again.
    wanted="$(adk_digest "$lock") $ADK_VENV"
    if "$ADK_PYTHON" -c '' 2>/dev/null && adk_same_interpreter "$interpreter"; then
        if [[ $(cat "$ADK_VENV/adk-$kind.stamp" 2>/dev/null) == "$wanted" ]]; then return; fi
        if [[ $kind == runtime && $(cat "$ADK_VENV/adk-checks.stamp" 2>/dev/null) == \
            "$(adk_digest "$ADK_ROOT/requirements/checks.lock") $ADK_VENV" ]]; then return; fi
    fi
    adk_make_venv
    adk_say "installing the locked packages of requirements/$kind.lock, once"
    adk_quietly adk_pip install --require-hashes --only-binary :all: -r "$lock" ||
        adk_die "the locked packages could not be installed; pip's own words are above"
    printf '%s\n' "$wanted" >"$ADK_VENV/adk-$kind.stamp"
}

adk_same_interpreter() {
    [[ $1 == any ]] || "$ADK_PYTHON" - "$1" <<'PYTHON'
import os, subprocess, sys
ask = "import sys; print(sys.base_prefix, sys.version)"
there = subprocess.run([sys.argv[1], "-c", ask], capture_output=True, text=True).stdout.strip()
sys.exit(there != f"{sys.base_prefix} {sys.version}".strip())
PYTHON
}

adk_install_project() {
    local wanted
    wanted=$(adk_digest "$ADK_ROOT/pyproject.toml")
    [[ $(cat "$ADK_VENV/adk-project.stamp" 2>/dev/null) != "$wanted" ]] || return 0
    # hatchling comes from the lock, so nothing is asked of an index here.
    adk_quietly adk_pip install --no-deps --no-build-isolation --no-index -e "$ADK_ROOT" ||
        adk_die "the project could not be installed into $ADK_VENV; pip's own words are above"
    printf '%s\n' "$wanted" >"$ADK_VENV/adk-project.stamp"
}

# adk_setup_servers: the server programs of PostgreSQL, PgBouncer, Redis and RabbitMQ are on this machine. The tests
# start servers of their own from them, on free ports; services that the packages may start are neither used nor touched.
adk_setup_servers() {
    local missing
    missing=$(adk_missing_servers)
    [[ -n $missing ]] || return 0
    # What apt itself thinks of it decides nothing: a service that the package could not start, for its port is taken or
    # there is nothing to start services with, is an error to apt. We want the programs.
    # shellcheck disable=SC2086 # one word each
    adk_apt_install $missing || true
    if [[ -n $(adk_missing_servers) ]]; then
        adk_die "servers that the tests need are missing. As root, run:" "apt-get install $missing"
    fi
}

# Prints the missing servers' Debian packages in one line.
adk_missing_servers() {
    (cd "$ADK_ROOT" && "$ADK_PYTHON" -m tests.servers)
}

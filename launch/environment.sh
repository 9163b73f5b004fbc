# Sourced by the commands beside it: an active environment, or .venv, with
# dpjax and the extras named in the first argument installed.
#
# An environment that is active is used as it is and only completed. The stamp
# lets a second run start at once, as long as the requirements are the same.

PYTHON_MINIMUM='3.11'

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && "$candidate" -c \
        'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "error: Python $PYTHON_MINIMUM or newer is needed; none found on PATH" \
    >&2
  return 1
}

prepare() {
  local extras="$1" python stamp digest
  if [ -n "${VIRTUAL_ENV:-}" ] || [ -n "${CONDA_PREFIX:-}" ]; then
    python="$(command -v python)"
  else
    if [ ! -x .venv/bin/python ]; then
      local system
      system="$(find_python)" || return 1
      echo "creating .venv with $("$system" --version)"
      "$system" -m venv .venv || return 1
    fi
    python="$PWD/.venv/bin/python"
  fi
  digest="$(cat setup.cfg pyproject.toml | cksum)"
  stamp="$("$python" -c 'import sys; print(sys.prefix)')/.dpjax-$extras"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$digest $PWD" ]; then
    echo "installing dpjax[$extras] (once; a minute or two)"
    "$python" -m pip install --quiet --disable-pip-version-check \
      --editable ".[$extras]" || {
        echo 'error: installation failed; the lines above say why' >&2
        return 1
      }
    echo "$digest $PWD" > "$stamp"
  fi
  DPJAX_PYTHON="$python"
}

# Sourced by scripts that print the path of a Python with some package (jax_python.sh, torch_python.sh): the one that a variable
# names, else a virtual environment of pinned packages, made on the first call. They say
#   package            what has to be imported: jax
#   kind               how its environments are called: jax-KEY
#   given              the variable that names a Python: AUTOMAP_JAX_PYTHON
#   requirements       the file of what is installed
#   install_timeout_s
#   is_made VENV       whether an environment that is there can be used
script=$(basename "$0")

die() { echo "$script: $*" >&2; exit "${code:-1}"; }
has_package() { [[ -n $1 ]] && "$1" -B -c "import $package" >/dev/null 2>&1; }

install=yes
case "${1:-}" in
  "") ;;
  --no-install) install=no ;;
  -h | --help) sed -n '2,/^set -e/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
  *) code=2 die "unknown argument $1 (--no-install)" ;;
esac

if [[ -n ${!given:-} ]]; then
  has_package "${!given}" || die "$given=${!given} cannot import $package; unset it, or install $package there"
  echo "${!given}"
  exit 0
fi

base=${AUTOMAP_VENV_PYTHON:-/usr/bin/python3}
[[ -x $base ]] || base=$(command -v python3) || die "there is no python3"
# One environment per set of requirements and Python: a change of either makes a new one.
key=$({ cat "$requirements"; "$base" -c 'import sys; print(sys.version, sys.prefix)'; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/automap
venv=$cache/$kind-$key
is_made "$venv" && { echo "$venv/bin/python"; exit 0; }
[[ $install == yes ]] || die "no Python with $package is there yet; scripts/$script makes one"

mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9  # another run may be making it
if ! is_made "$venv"; then
  echo "$script: installing $(tr '\n' ' ' <"$requirements")into $venv" >&2
  log=$venv.log
  rm -rf "$venv"
  if ! { "$base" -m venv "$venv" &&
    timeout "$install_timeout_s" "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check -r "$requirements"; } \
    >"$log" 2>&1 9>&- </dev/null; then
    tail -n 5 "$log" >&2
    rm -rf "$venv"
    die "no Python with $package: the package registry could not be reached, or does not have the requirements ($log)"
  fi
  has_package "$venv/bin/python" || die "$package was installed into $venv and cannot be imported: $("$venv/bin/python" -c "import $package" 2>&1 | tail -n 1)"
  touch "$venv/ready"
fi
echo "$venv/bin/python"

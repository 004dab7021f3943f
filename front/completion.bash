# Completion of automap and its programs: each says itself what may be typed (--help-as words, common/base/option_pages.h).
_automap() {
  local program=${COMP_WORDS[0]} at=1 rows kind name short type values says found=()
  local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  # Bash ends words at "=": --option = value.
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $before == "=" ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  local asked=("${program/#\~/$HOME}")
  rows=$("${asked[@]}" --help-as words 2>/dev/null </dev/null)
  # Commands, until one of them is typed that has options.
  while [[ $rows == command* ]]; do
    if ((at == COMP_CWORD)); then
      while IFS=$'\t' read -r kind name says; do found+=("$name"); done <<<"$rows"
      COMPREPLY=($(compgen -W "${found[*]} help --help --version" -- "$cur"))
      return
    fi
    asked+=("${COMP_WORDS[at]}")
    at=$((at + 1))
    rows=$("${asked[@]}" --help-as words 2>/dev/null </dev/null)
  done
  local option=none argument=() wanted=file
  values=
  # A tab is white space to `read`, which would take two for one.
  while IFS=$'\x1f' read -r kind name short type known says; do
    if [[ $kind == argument ]]; then
      argument+=($known)
      continue
    fi
    found+=("$name")
    if [[ $before == "$name" || ($before == "$short" && -n $short) ]] && [[ $type != flag ]]; then
      option=$name wanted=$type values=$known
    fi
  done <<<"${rows//$'\t'/$'\x1f'}"
  if [[ $option == none && $cur == -* ]]; then
    COMPREPLY=($(compgen -W "${found[*]}" -- "$cur"))
    return
  fi
  [[ $option != none ]] || values=${argument[*]}
  COMPREPLY=($(compgen -W "$values" -- "$cur"))
  compopt -o filenames 2>/dev/null
  case $wanted in
    folder) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$cur") ;;
    file) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur") ;;
  esac
}
complete -F _automap @AUTOMAP_COMPLETED@

#compdef @AUTOMAP_COMPLETED@
# Completion of automap and its programs: each says itself what may be typed (--help-as words, common/base/option_pages.h).
# _automap_known FILES VALUE...: the values that are known, and files.
_automap_known() {
  local files=$1
  shift
  _alternative "values:value:($*)" "files:file:$files"
}
local -a rows asked fields commands specs
local row at=2 say action
asked=(${(Q)words[1]})
rows=(${(f)"$($asked --help-as words 2>/dev/null </dev/null)"})
# Commands, until one of them is typed that has options.
while [[ $rows[1] == command* ]]; do
  if (( at == CURRENT )); then
    for row in $rows; do
      fields=("${(@ps:\t:)row}")
      commands+=("$fields[2]:$fields[3]")
    done
    _describe command commands
    return
  fi
  asked+=(${(Q)words[at]})
  (( at++ ))
  rows=(${(f)"$($asked --help-as words 2>/dev/null </dev/null)"})
done
(( ${#rows} )) || { _files; return }
# What _arguments completes is what stands behind the commands.
words=(${words[1]} ${words[at,-1]})
(( CURRENT -= at - 2 ))
for row in $rows; do
  fields=("${(@ps:\t:)row}")
  # A colon and a bracket end a part of what _arguments reads.
  say=${${${${fields[6]}//\\/\\\\}//:/\\:}//\]/\\]}
  case $fields[4] in
    file) action=_files ;;
    folder) action='_files -/' ;;
    *) action=' ' ;;
  esac
  if [[ -n $fields[5] ]]; then
    if [[ $fields[4] == file || $fields[4] == folder ]]; then
      # The space in front: _arguments adds nothing to what is called.
      action=" _automap_known '$action' ${fields[5]}"
    else
      action="(${fields[5]})"
    fi
  fi
  if [[ $fields[1] == argument ]]; then
    specs+=("*:${fields[2]}:$action")
  elif [[ $fields[4] == flag ]]; then
    specs+=("${fields[2]}[$say]")
    [[ -n $fields[3] ]] && specs+=("${fields[3]}[$say]")
  else
    specs+=("${fields[2]}=[$say]:value:$action")
    [[ -n $fields[3] ]] && specs+=("${fields[3]}[$say]:value:$action")
  fi
done
_arguments $specs

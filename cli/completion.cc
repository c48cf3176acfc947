#include "cli/completion.h"

#include <fmt/format.h>

#include <vector>

namespace stasis {
namespace {

struct Word {
  std::string text;
  std::string what;
};

struct VerbDescription {
  std::string name;
  std::string what;
  std::vector<Word> options;
  // Options with a fixed set of values: option, values.
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  std::vector<std::string> positional_values;
  bool takes_task = false;
  bool takes_program = false;
};

// CLI11 describes a set of values as "{a,b,c}" in the option's own description of its checks.
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  std::vector<std::string> values;
  std::string text = option.get_type_name();
  size_t begin = text.find('{'), end = text.find('}');
  if (begin == std::string::npos || end == std::string::npos) return values;
  for (size_t at = begin + 1; at < end;) {
    size_t comma = std::min(text.find(',', at), end);
    values.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return values;
}

void Describe(const CLI::Option& option, VerbDescription* verb) {
  std::vector<std::string> values = ValuesOf(option);
  if (option.get_positional()) {
    verb->positional_values = values;
    verb->takes_task = verb->takes_task || values.empty();
  }
  for (const std::string& name : option.get_snames())
    verb->options.push_back({"-" + name, option.get_description()});
  for (const std::string& name : option.get_lnames()) {
    verb->options.push_back({"--" + name, option.get_description()});
    if (!values.empty()) verb->values.emplace_back("--" + name, values);
  }
}

std::vector<VerbDescription> DescribeVerbs(const CLI::App& app) {
  std::vector<VerbDescription> verbs;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_group().empty()) continue;
    VerbDescription verb{sub->get_name(), sub->get_description(),   {}, {}, {},
                         false,           sub->get_prefix_command()};
    for (const CLI::Option* option : sub->get_options()) Describe(*option, &verb);
    verbs.push_back(std::move(verb));
  }
  return verbs;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string OptionWords(const VerbDescription& verb) {
  std::string text;
  for (const Word& option : verb.options) text += (text.empty() ? "" : " ") + option.text;
  return text;
}

std::string Quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string BashVerb(const VerbDescription& verb) {
  std::string text = fmt::format("    {})\n      case $previous in\n", verb.name);
  for (const auto& [option, values] : verb.values) {
    text += fmt::format("        {}) COMPREPLY=($(compgen -W {} -- \"$current\")); return ;;\n", option,
                        Quoted(Joined(values)));
  }
  text += "      esac\n";
  std::string words = Quoted(OptionWords(verb));
  text += fmt::format(
      "      if [[ $current == -* ]]; then COMPREPLY=($(compgen -W {} -- \"$current\")); return; fi\n",
      words);
  if (verb.takes_program)
    text += "      COMPREPLY=($(compgen -c -f -- \"$current\")) ;;\n";
  else if (verb.takes_task)
    text += "      COMPREPLY=($(compgen -W \"$(stasis complete-tasks)\" -- \"$current\")) ;;\n";
  else
    text += fmt::format("      COMPREPLY=($(compgen -W {} -- \"$current\")) ;;\n",
                        Quoted(Joined(verb.positional_values)));
  return text;
}

std::string Bash(const CLI::App& app) {
  std::string names, cases;
  for (const VerbDescription& verb : DescribeVerbs(app)) {
    names += (names.empty() ? "" : " ") + verb.name;
    cases += BashVerb(verb);
  }
  return fmt::format(R"(# bash completion of stasis
_stasis() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W {} -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
}}
complete -F _stasis stasis
)",
                     Quoted(names + " --help --version"), cases);
}

std::string ZshVerb(const VerbDescription& verb) {
  std::string text = fmt::format("    {})\n      options=(", verb.name);
  for (const Word& option : verb.options) text += " " + option.text;
  text += ")\n      case $words[CURRENT-1] in\n";
  for (const auto& [option, values] : verb.values)
    text += fmt::format("        {}) compadd {}; return ;;\n", option, Joined(values));
  text += "      esac\n      if [[ $words[CURRENT] == -* ]]; then compadd -- $options; return; fi\n";
  if (verb.takes_program)
    text += "      _command_names -e; _files ;;\n";
  else if (verb.takes_task)
    text += "      compadd -- ${(f)\"$(stasis complete-tasks)\"} ;;\n";
  else
    text += fmt::format("      compadd -- {} ;;\n", Joined(verb.positional_values));
  return text;
}

std::string Zsh(const CLI::App& app) {
  std::string names, cases;
  for (const VerbDescription& verb : DescribeVerbs(app)) {
    names += " " + verb.name;
    cases += ZshVerb(verb);
  }
  return "#compdef stasis\n_stasis() {\n  local -a options\n  if ((CURRENT == 2)); then compadd --" + names +
         "; compadd -- --help --version; return; fi\n  case $words[2] in\n" + cases +
         "  esac\n}\ncompdef _stasis stasis\n";
}

std::string FishVerb(const VerbDescription& verb) {
  std::string in_verb = fmt::format("complete -c stasis -n '__fish_seen_subcommand_from {}'", verb.name);
  std::string text = fmt::format("complete -c stasis -f -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                                 Quoted(verb.what));
  for (const Word& option : verb.options) {
    bool is_long = option.text.rfind("--", 0) == 0;
    text += fmt::format("{} {} {} -d {}", in_verb, is_long ? "-l" : "-s", option.text.substr(is_long ? 2 : 1),
                        Quoted(option.what));
    for (const auto& [name, values] : verb.values) {
      if (name == option.text) text += fmt::format(" -x -a {}", Quoted(Joined(values)));
    }
    text += "\n";
  }
  if (verb.takes_program)
    text += in_verb + " -a '(__fish_complete_command)'\n";
  else if (verb.takes_task)
    text += in_verb + " -f -a '(stasis complete-tasks)'\n";
  else
    text += fmt::format("{} -f -a {}\n", in_verb, Quoted(Joined(verb.positional_values)));
  return text;
}

std::string Fish(const CLI::App& app) {
  std::string text = "# fish completion of stasis\n";
  for (const VerbDescription& verb : DescribeVerbs(app)) text += FishVerb(verb);
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "zsh") return Zsh(app);
  return shell == "fish" ? Fish(app) : Bash(app);
}

}  // namespace stasis

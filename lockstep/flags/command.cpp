#include "lockstep/flags/command.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::flags {
namespace {

void add_places(const Command& command, const std::string& path, std::vector<Place>& places) {
  places.push_back({path, &command});
  for (const Command& below : command.commands) add_places(below, path + " " + below.name, places);
}

}  // namespace

std::string help(const Command& command) {
  std::size_t width = 0;
  for (const Command& below : command.commands) width = std::max(width, below.name.size());
  std::string text = "usage: " + command.table.usage + "\n\ncommands:\n";
  for (const Command& below : command.commands)
    text += "  " + below.name + std::string(width + 2 - below.name.size(), ' ') + below.summary + "\n";
  return text + (command.table.after.empty() ? "" : "\n") + command.table.after;
}

std::vector<std::string> names_of(const Command& command) {
  std::vector<std::string> names;
  for (const Command& below : command.commands) names.push_back(below.name);
  return names;
}

std::vector<Place> places_of(const Command& root) {
  std::vector<Place> places;
  add_places(root, root.name, places);
  return places;
}

Place find_place(const Command& root, const std::vector<std::string>& words) {
  Place place{root.name, &root};
  for (const std::string& word : words) {
    const std::vector<Command>& commands = place.command->commands;
    const auto found = std::ranges::find(commands, word, &Command::name);
    if (commands.empty()) throw UsageError("'" + place.path + "' has no commands, found '" + word + "'");
    if (found == commands.end()) throw UsageError(base::unknown_name("command", word, names_of(*place.command)));
    place = {place.path + " " + word, &*found};
  }
  return place;
}

}  // namespace lockstep::flags

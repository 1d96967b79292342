#include "lockstep/launch/doctor/finding.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

constexpr const char* kLevels[] = {"good", "note", "wrong"};

const char* word_of(Finding::Level level) { return kLevels[int(level)]; }

int count_of(const std::vector<Examined>& all, Finding::Level level) {
  int count = 0;
  for (const Examined& one : all) count += int(std::ranges::count(one.findings, level, &Finding::level));
  return count;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

}  // namespace

bool anything_wrong(const std::vector<Examined>& all) { return count_of(all, Finding::Level::wrong) > 0; }

std::string findings_as_text(const std::vector<Examined>& all) {
  std::string text;
  for (const Examined& one : all) {
    text += base::shown(one.title) + "\n";
    for (const Finding& finding : one.findings) {
      text += "  " + padded(word_of(finding.level), 7) + base::shown(finding.what) + ": " + base::shown(finding.value) +
              "\n";
      if (!finding.advice.empty()) text += "         " + base::shown(finding.advice) + "\n";
    }
    text += "\n";
  }
  const int wrong = count_of(all, Finding::Level::wrong);
  const int notes = count_of(all, Finding::Level::note);
  return text + (wrong == 0 ? "nothing" : std::to_string(wrong)) + " wrong, " + std::to_string(notes) +
         (notes == 1 ? " note\n" : " notes\n");
}

std::string findings_as_json(const std::vector<Examined>& all) {
  using Json = nlohmann::ordered_json;
  Json root = {{"wrong", count_of(all, Finding::Level::wrong)}, {"examined", Json::array()}};
  for (const Examined& one : all) {
    Json findings = Json::array();
    for (const Finding& finding : one.findings)
      findings.push_back({{"level", word_of(finding.level)},
                          {"what", finding.what},
                          {"value", finding.value},
                          {"advice", finding.advice}});
    root["examined"].push_back({{"title", one.title}, {"findings", findings}});
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Finding unprotected() {
  return {Finding::Level::note, "not protected", "what workers say to each other, with a key or without",
          "Gloo, NCCL, MPI and a script's store at MASTER_PORT: keep the network between the nodes to yourself"};
}

}  // namespace lockstep::launch

#include "lockstep/checkpoint/files/state_dict.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "lockstep/checkpoint/files/torch_names.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {
namespace {

using Values = std::map<std::string, const PickledValue*>;

constexpr std::string_view kEntries[] = {"model", "state_dict", "model_state_dict", "model_ema"};
constexpr std::string_view kPrefix = "module.";
// How often AveragedModel has averaged; no part of the model.
constexpr const char* kAveraged = "n_averaged";

// Of keys that are text, as Python has it: the last of equal ones counts.
Values entries_of(const Pickle& saved, const PickledValue& dictionary) {
  Values entries;
  const std::vector<std::uint32_t> items = items_of(saved, dictionary);
  // A memo gives a long key again for two bytes: each text is copied and compared once, and so all of them are no more
  // than the file.
  std::unordered_map<std::uint32_t, const PickledValue**> seen;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const PickledValue& key = saved.at(items[i]);
    if (key.kind != PickledValue::Kind::text) continue;
    const auto [known, is_new] = seen.emplace(items[i], nullptr);
    if (is_new) known->second = &entries[std::string(key.text)];
    *known->second = &saved.at(items[i + 1]);
  }
  return entries;
}

bool has_tensors(const PtFile& file, const Values& entries) {
  return std::ranges::any_of(entries, [&](const auto& entry) { return file.is_tensor(*entry.second); });
}

// How often the name has it at its beginning.
std::size_t prefixes_of(std::string_view name) {
  std::size_t often = 0;
  for (; name.starts_with(kPrefix); name.remove_prefix(kPrefix.size())) ++often;
  return often;
}

// All names without what is in front of each of them.
Values without_prefix(Values entries) {
  const auto prefixed = [](const auto& entry) { return entry.first.starts_with(kPrefix); };
  const auto count = std::ranges::count_if(entries, prefixed);
  if (count > 0 && count + 1 == std::ssize(entries) && entries.contains(kAveraged)) entries.erase(kAveraged);
  if (entries.empty()) return entries;
  // Of each name as often as of all, in one go: a name of nothing else would be copied as often as it has it.
  std::size_t often = std::numeric_limits<std::size_t>::max();
  for (const auto& [name, value] : entries) often = std::min(often, prefixes_of(name));
  if (often == 0) return entries;
  Values shorter;
  for (const auto& [name, value] : entries) shorter[name.substr(often * kPrefix.size())] = value;
  return shorter;
}

// The entry of a checkpoint that has the weights; "" when none has.
std::string entry_with_weights(const PtFile& file, const Values& entries) {
  for (const std::string_view name : kEntries) {
    const auto entry = entries.find(std::string(name));
    if (entry == entries.end() || !is_dictionary(file.saved(), *entry->second)) continue;
    if (has_tensors(file, entries_of(file.saved(), *entry->second))) return entry->first;
  }
  return "";
}

// "; 'model' is demo.Net, which is not made": what was saved in the place of weights, by names that the pickle has.
std::string objects_among(const Pickle& saved, const Values& entries) {
  constexpr std::size_t kMost = 3;
  std::string text;
  std::size_t count = 0;
  for (const auto& [name, value] : entries) {
    if (value->kind != PickledValue::Kind::call && value->kind != PickledValue::Kind::global) continue;
    if (++count <= kMost) text += (count == 1 ? "; '" : ", '") + brief(name) + "' is " + described(saved, *value);
  }
  if (count > kMost) text += " and " + std::to_string(count - kMost) + " more are objects";
  return count == 0 ? "" : text + ": objects are not made, save the state_dict() of a model";
}

}  // namespace

FoundWeights weights_in(const InputFile& file, const PtFile& pt) {
  const Pickle& saved = pt.saved();
  const PickledValue& root = saved.at(saved.root);
  if (!is_dictionary(saved, root))
    file.fail(root.offset, described(saved, root) + " was saved; save the state_dict() of a model");
  FoundWeights found;
  Values entries = entries_of(saved, root);
  // First those of a checkpoint, for beside them it may have a tensor that is none of the weights, as the best
  // accuracy.
  if (const std::string chosen = entry_with_weights(pt, entries); !chosen.empty()) {
    for (const auto& [name, value] : entries)
      if (name != chosen) found.others[name] = described(saved, *value);
    entries = entries_of(saved, *entries.at(chosen));
  } else if (!has_tensors(pt, entries)) {
    file.fail(root.offset,
              "no weights: neither a dictionary of tensors, nor one as its 'model', 'state_dict', "
              "'model_state_dict' or 'model_ema'" +
                  objects_among(saved, entries));
  }
  std::uint64_t bytes = 0;
  for (const auto& [name, value] : without_prefix(std::move(entries))) {
    if (!pt.is_tensor(*value)) {
      found.others[name] = described(saved, *value);
      continue;
    }
    const StoredTensor& tensor = found.tensors[name] = pt.tensor(*value);
    bytes += tensor.bytes();
    if (bytes / 8 > file.size())
      file.fail(value->offset, "tensors that share storages: with '" + brief(name) + "' they are " +
                                   std::to_string(bytes) + " bytes, more than eight times the file");
  }
  return found;
}

}  // namespace lockstep::checkpoint

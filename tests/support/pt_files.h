#pragma once

// What torch.save writes, opcode by opcode, and what it never would.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/files/zip_writer.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::testing::pt {

using Entries = std::vector<std::pair<std::string, std::string>>;

template <class Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// Opcodes that leave one value on the stack.
inline std::string text(const std::string& value) { return "X" + raw(std::uint32_t(value.size())) + value; }
inline std::string integer(std::int32_t value) { return "J" + raw(value); }
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::string& items) { return "(" + items + "t"; }
inline std::string integers(const std::vector<std::int32_t>& values) {
  std::string items;
  for (const std::int32_t value : values) items += integer(value);
  return tuple(items);
}
inline std::string dictionary(const Entries& entries) {
  std::string items;
  for (const auto& [key, value] : entries) items += text(key) + value;
  return "}(" + items + "u";
}
inline std::string ordered(const Entries& entries) {
  return global("collections", "OrderedDict") + ")R" + dictionary(entries).substr(1);
}
inline std::string storage(const std::string& kind, const std::string& key, std::int32_t count,
                           const std::string& location = "cpu", const std::string& more = "") {
  return tuple(text("storage") + global("torch", kind) + text(key) + text(location) + integer(count) + more) + "Q";
}
inline std::string tensor(const std::string& storage, const std::vector<std::int32_t>& sizes,
                          const std::vector<std::int32_t>& strides, std::int32_t offset = 0) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple(storage + integer(offset) + integers(sizes) + integers(strides) + "\x89" +
               global("collections", "OrderedDict") + ")R") +
         "R";
}
/// An argparse.Namespace, as torchvision's trainer saves it.
inline std::string name_space() {
  return global("argparse", "Namespace") + ")\x81" + dictionary({{"lr", "G?\xb9\x99\x99\x99\x99\x99\x9a"}}) + "b";
}

inline std::string pickle(const std::string& value) { return "\x80\x02" + value + "."; }

/// The older format: storages are bytes with the number of their elements.
inline std::string old_file(
    const std::string& value,
    const std::vector<std::pair<std::string, std::pair<std::uint64_t, std::string>>>& storages) {
  std::string keys, data;
  for (const auto& [key, content] : storages) {
    keys += text(key);
    data += raw(content.first) + content.second;
  }
  return pickle(std::string("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12)) + pickle(integer(1001)) +
         pickle(dictionary({{"little_endian", "\x88"}})) + pickle(value) + pickle("](" + keys + "e") + data;
}

/// The archive, with the entries behind data.pkl.
inline std::string archive(const std::string& value, const Entries& entries, std::uint64_t wide_from = 0xffffffff) {
  const ScratchFolder folder;
  checkpoint::ZipWriter file(folder.file("a"), wide_from);
  const auto add = [&](const std::string& name, const std::string& bytes) {
    file.add("any/" + name, bytes.data(), bytes.size());
  };
  add("data.pkl", pickle(value));
  for (const auto& [name, bytes] : entries) add(name, bytes);
  add("version", "3\n");
  file.commit();
  return read_file(folder.file("a"));
}

}  // namespace lockstep::testing::pt

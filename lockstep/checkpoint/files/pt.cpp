#include "lockstep/checkpoint/files/pt.h"

#include <algorithm>
#include <cstring>

#include "lockstep/checkpoint/files/little_endian.h"
#include "lockstep/checkpoint/files/torch_names.h"
#include "lockstep/checkpoint/store/tensor_file.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {
namespace {

using Kind = PickledValue::Kind;

constexpr std::uint64_t kLongestPickle = 64'000'000;
// What the older format begins with, and its version.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr std::int64_t kOldVersion = 1001;
constexpr std::size_t kMostDimensionsRead = 64;
// A parameter of a tensor of a subclass.
constexpr int kMostWrappings = 4;

bool begins_with(const InputFile& file, std::string_view bytes) {
  return file.size() >= bytes.size() && file.bytes(0, bytes.size()) == bytes;
}

}  // namespace

bool begins_as_pt(const InputFile& file) {
  if (begins_with(file, "PK\x03\x04")) return true;
  const std::string start = file.bytes(0, std::min<std::uint64_t>(file.size(), 2));
  return start.size() == 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;
}

PtFile::PtFile(const InputFile& file) : file_(file) {
  if (begins_with(file, "PK\x03\x04"))
    open_archive();
  else
    open_old();
}

void PtFile::open_archive() {
  archive_.emplace(file_);
  folder_ = archive_->folder_of("data.pkl");
  if (archive_->has(folder_ + "/constants.pkl"))
    file_.fail(0, "a TorchScript archive, which is code; save state_dict() of the module in Python");
  if (const std::string order = folder_ + "/byteorder"; archive_->has(order)) {
    const std::string text = archive_->text(order, 16);
    if (text != "little" && text != "big")
      file_.fail(archive_->range(order).begin, "the byte order '" + brief(text) + "'; it is little or big");
    big_endian_ = text == "big";
  }
  const Range pickle = archive_->range(folder_ + "/data.pkl");
  bytes_ = archive_->text(folder_ + "/data.pkl", kLongestPickle);
  saved_ = unpickle(file_, bytes_, pickle.begin);
}

void PtFile::open_old() {
  bytes_ = file_.bytes(0, std::min(file_.size(), kLongestPickle));
  std::uint64_t next = 0;
  const auto read = [&] {
    Pickle pickle = unpickle(file_, std::string_view(bytes_).substr(next), next);
    next += pickle.bytes;
    return pickle;
  };
  const Pickle magic = read();
  if (const PickledValue& value = magic.at(magic.root); value.kind != Kind::large || value.text != kMagic)
    file_.fail(0, "a pickle that torch.save has not written: " + described(magic, value) + " in place of its number");
  const std::uint64_t version_begin = next;
  const Pickle version = read();
  if (const PickledValue& value = version.at(version.root); value.kind != Kind::integer || value.integer != kOldVersion)
    file_.fail(version_begin, "version " + described(version, value) + " of the format; 1001 is read");
  read();  // of the machine that wrote it; numbers are little-endian from any
  saved_ = read();
  const std::uint64_t keys_begin = next;
  const Pickle keys = read();
  if (keys.at(keys.root).kind != Kind::list) file_.fail(keys_begin, "no list of storages");
  place_old_storages(keys, next);
}

// Each is the number of its elements, of 8 bytes, and these.
void PtFile::place_old_storages(const Pickle& keys, std::uint64_t begin) {
  std::map<std::string, std::size_t> elements;
  for (const PickledValue& value : saved_.values) {
    if (value.kind != Kind::outside || !names_storage(saved_, value)) continue;
    const Storage known = storage(value);
    elements.emplace(known.key, element_bytes(known.dtype));
  }
  for (const std::uint32_t number : keys.at(keys.root).items) {
    const PickledValue& key = keys.at(number);
    const auto known = elements.find(std::string(key.text));
    if (key.kind != Kind::text || known == elements.end())
      file_.fail(key.offset, "the storage " + described(keys, key) + ", of which the pickle says nothing");
    if (file_.size() - begin < sizeof(std::uint64_t))
      file_.fail(begin, "the file ends where storage " + described(keys, key) + " begins");
    const auto count = little<std::uint64_t>(file_.bytes(begin, sizeof(std::uint64_t)), 0);
    begin += sizeof(std::uint64_t);
    if (count > (file_.size() - begin) / known->second)
      file_.fail(begin, "storage " + described(keys, key) + " has " + std::to_string(count) + " elements of " +
                            std::to_string(known->second) + " bytes, the file ends after " +
                            std::to_string(file_.size() - begin) + " bytes");
    old_storages_[known->first] = {.begin = begin, .bytes = count * known->second};
    begin += count * known->second;
  }
}

// Behind its arguments a tensor may say that its numbers are to be read conjugate or negated: another tensor than that
// of its bytes.
bool PtFile::is_plain(const std::string& function, const PickledValue& arguments) const {
  const std::size_t metadata = has_own_dtype(function) ? 7 : 6;
  if (arguments.items.size() <= metadata) return true;
  const PickledValue& value = saved_.at(arguments.items[metadata]);
  return value.kind == Kind::none || (is_dictionary(saved_, value) && items_of(saved_, value).empty());
}

PtFile::Made PtFile::made_by(const PickledValue& value) const {
  const PickledValue* made = &value;
  for (int i = 0; i < kMostWrappings && made->kind == Kind::call; ++i) {
    const std::string function = full_name(saved_.at(made->function));
    const PickledValue& arguments = saved_.at(made->arguments);
    if (is_tensor_function(function)) return is_plain(function, arguments) ? Made{function, &arguments} : Made{};
    if (is_subclass_function(function) && arguments.items.size() == 4) {  // function, class, arguments, state
      const std::string inner = full_name(saved_.at(arguments.items[0]));
      const PickledValue& given = saved_.at(arguments.items[2]);
      if (is_tensor_function(inner) && given.kind == Kind::tuple && is_plain(inner, given) &&
          is_plain_class(full_name(saved_.at(arguments.items[1]))))
        return {inner, &given};
      return {};
    }
    if (!is_parameter_function(function) || arguments.items.empty()) return {};
    made = &saved_.at(arguments.items[0]);
  }
  return {};
}

bool PtFile::is_tensor(const PickledValue& value) const { return made_by(value).arguments != nullptr; }

StoredTensor PtFile::tensor(const PickledValue& value) const {
  const Made made = made_by(value);
  if (made.arguments == nullptr) file_.fail(value.offset, described(saved_, value) + " is no dense tensor");
  const PickledValue& arguments = *made.arguments;
  const PickledValue& outside = argument(arguments, 0, Kind::outside, "storage");
  const Storage known = storage(outside);
  const std::uint64_t first = count(arguments, 1, "offset");
  StoredTensor tensor{.dtype = known.dtype,
                      .sizes = counts(arguments, 2, "sizes"),
                      .strides = counts(arguments, 3, "strides"),
                      .big_endian = big_endian_};
  std::uint64_t elements = known.used, element = element_bytes(known.dtype);
  if (has_own_dtype(made.function)) {  // the storage is bytes
    const std::string name = full_name(argument(arguments, 6, Kind::global, "dtype"));
    tensor.dtype = dtype_of_torch(name);
    if (tensor.dtype.empty()) file_.fail(value.offset, "a tensor of the unknown dtype " + brief(name));
    elements = known.used * element / element_bytes(tensor.dtype);
    element = element_bytes(tensor.dtype);
  }
  if (tensor.sizes.size() != tensor.strides.size())
    file_.fail(value.offset, "a tensor with " + std::to_string(tensor.sizes.size()) + " sizes and " +
                                 std::to_string(tensor.strides.size()) + " strides");
  check_extent(tensor, first, elements, value);
  const Range range = place(known, outside);
  tensor.offset = range.begin + known.skipped * element_bytes(known.dtype);
  if (tensor.bytes() > 0) tensor.offset += first * element;
  return tensor;
}

// Sizes and strides are below 2^63, and so must be what they make.
void PtFile::check_extent(const StoredTensor& tensor, std::uint64_t first, std::uint64_t elements,
                          const PickledValue& value) const {
  std::int64_t all = std::int64_t(element_bytes(tensor.dtype)), last = 0;
  bool empty = false, impossible = __builtin_add_overflow(last, first, &last);
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const std::int64_t size = tensor.sizes[i];
    empty = empty || size == 0;
    std::int64_t way = 0;
    impossible = impossible || __builtin_mul_overflow(all, std::max<std::int64_t>(size, 1), &all) ||
                 __builtin_mul_overflow(std::max<std::int64_t>(size - 1, 0), tensor.strides[i], &way) ||
                 __builtin_add_overflow(last, way, &last);
  }
  if (impossible) file_.fail(value.offset, "a tensor of an impossible shape");
  if (empty) return;
  if (std::uint64_t(last) >= elements)
    file_.fail(value.offset, "a tensor that reaches to element " + std::to_string(last) + " of a storage of " +
                                 std::to_string(elements));
  // An expanded tensor has more elements than its storage.
  if (std::uint64_t(all) > file_.size())
    file_.fail(value.offset, "a tensor of " + std::to_string(all) + " bytes in a file of " +
                                 std::to_string(file_.size()) + "; save a copy that is not expanded");
}

PtFile::Storage PtFile::storage(const PickledValue& value) const {
  const PickledValue& id = saved_.at(value.arguments);
  if (!names_storage(saved_, value)) file_.fail(value.offset, "what lies outside of the pickle is no storage");
  const PickledValue& kind = argument(id, 1, Kind::global, "kind of storage");
  Storage storage{.key = std::string(argument(id, 2, Kind::text, "key of a storage").text),
                  .dtype = dtype_of_storage(full_name(kind)),
                  .count = count(id, 4, "number of elements")};
  if (storage.dtype.empty()) file_.fail(kind.offset, "a storage of the unknown kind " + described(saved_, kind));
  storage.used = storage.count;
  if (id.items.size() < 6 || saved_.at(id.items[5]).kind == Kind::none) return storage;
  // A part of it, which torch before 0.4 saved as a storage: key, offset, size.
  const PickledValue& part = argument(id, 5, Kind::tuple, "part of a storage");
  storage.skipped = count(part, 1, "begin of the part");
  storage.used = count(part, 2, "size of the part");
  if (storage.skipped > storage.count || storage.used > storage.count - storage.skipped)
    file_.fail(value.offset, "a part that is no part of its storage of " + std::to_string(storage.count) + " elements");
  return storage;
}

Range PtFile::place(const Storage& storage, const PickledValue& value) const {
  Range range;
  if (archive_) {
    range = archive_->range(folder_ + "/data/" + storage.key);
  } else {
    const auto found = old_storages_.find(storage.key);
    if (found == old_storages_.end())
      file_.fail(value.offset, "the storage '" + brief(storage.key) + "', which is not in the file");
    range = found->second;
  }
  const std::uint64_t element = element_bytes(storage.dtype);
  if (range.bytes % element != 0 || range.bytes / element != storage.count)
    file_.fail(range.begin, "storage '" + brief(storage.key) + "' has " + std::to_string(range.bytes) + " bytes, " +
                                std::to_string(storage.count) + " elements of " + std::to_string(element) +
                                " expected");
  return range;
}

const PickledValue& PtFile::argument(const PickledValue& tuple, std::size_t index, Kind kind, const char* what) const {
  if (tuple.kind != Kind::tuple || tuple.items.size() <= index)
    file_.fail(tuple.offset, std::string("no ") + what + " among " + std::to_string(tuple.items.size()) + " arguments");
  const PickledValue& value = saved_.at(tuple.items[index]);
  if (value.kind != kind)
    file_.fail(value.offset, described(saved_, value) + " where the " + what + " of a tensor belongs");
  return value;
}

std::uint64_t PtFile::count(const PickledValue& tuple, std::size_t index, const char* what) const {
  const PickledValue& value = argument(tuple, index, Kind::integer, what);
  if (value.integer < 0) file_.fail(value.offset, std::to_string(value.integer) + " as " + what);
  return std::uint64_t(value.integer);
}

std::vector<std::int64_t> PtFile::counts(const PickledValue& tuple, std::size_t index, const char* what) const {
  const PickledValue& list = argument(tuple, index, Kind::tuple, what);
  if (list.items.size() > kMostDimensionsRead)
    file_.fail(list.offset, std::to_string(list.items.size()) + " " + what + ", no tensor has more than 64");
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < list.items.size(); ++i) counts.push_back(std::int64_t(count(list, i, what)));
  return counts;
}

}  // namespace lockstep::checkpoint

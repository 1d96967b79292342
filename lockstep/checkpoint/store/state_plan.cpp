#include "lockstep/checkpoint/store/state_plan.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

// A state buffer of a region, every access within bounds.
class Buffer {
 public:
  Buffer(const StatePlan& plan, std::span<const std::byte> region, std::uint64_t number)
      : plan_(plan), region_(region), begin_(number * plan.buffer_bytes) {}

  const std::byte* at(std::uint64_t offset, std::uint64_t bytes) const { return checked(begin_, offset, bytes); }

  template <class T>
  T number(std::uint64_t offset) const {
    T value{};
    std::memcpy(&value, at(offset, sizeof value), sizeof value);
    return value;
  }

  const std::byte* frozen(std::uint64_t offset, std::uint64_t bytes) const {
    const auto area = number<std::uint64_t>(plan_.frozen_number);
    if (area >= base::kMaxStateBuffers) throw_other();
    return checked(plan_.frozen_areas + area * plan_.frozen_bytes, offset, bytes);
  }

 private:
  const std::byte* checked(std::uint64_t begin, std::uint64_t offset, std::uint64_t bytes) const {
    if (begin > region_.size() || offset > region_.size() - begin || bytes > region_.size() - begin - offset)
      throw_other();
    return region_.data() + begin + offset;
  }
  [[noreturn]] static void throw_other() {
    throw Error("checkpoint: the state in memory is another than the one that its plan tells of");
  }

  const StatePlan& plan_;
  const std::span<const std::byte> region_;
  const std::uint64_t begin_;
};

std::uint64_t bytes_of(const PlacedTensor& tensor) {
  std::uint64_t bytes = element_bytes(tensor.dtype);
  for (const std::int64_t size : tensor.sizes)
    if (size < 0 || __builtin_mul_overflow(bytes, std::uint64_t(size), &bytes))
      throw Error("checkpoint: a plan with a tensor of impossible sizes");
  return bytes;
}

Json json_of(const PlacedTensor& tensor) {
  return {tensor.name, tensor.dtype, tensor.sizes, tensor.strides, tensor.frozen, tensor.offset};
}
PlacedTensor tensor_of(const Json& json) {
  return {.name = json.at(0).get<std::string>(),
          .dtype = json.at(1).get<std::string>(),
          .sizes = json.at(2).get<std::vector<std::int64_t>>(),
          .strides = json.at(3).get<std::vector<std::int64_t>>(),
          .frozen = json.at(4).get<bool>(),
          .offset = json.at(5).get<std::uint64_t>()};
}

Json json_of(const PlacedBytes& bytes) { return {bytes.name, bytes.offset, bytes.size}; }
PlacedBytes kept_bytes_of(const Json& json) {
  return {.name = json.at(0).get<std::string>(),
          .offset = json.at(1).get<std::uint64_t>(),
          .size = json.at(2).get<std::uint64_t>()};
}

Json json_of(const KeptNumber& number) { return {number.name, number.kept, number.offset}; }
KeptNumber kept_number_of(const Json& json) {
  return {.name = json.at(0).get<std::string>(),
          .kept = json.at(1).get<std::string>(),
          .offset = json.at(2).get<std::uint64_t>()};
}

Json json_of(const PlacedSet& set);
Json json_of(const StatePlan& plan);

template <class T>
Json list_of(const std::vector<T>& all) {
  Json list = Json::array();
  for (const T& one : all) list.push_back(json_of(one));
  return list;
}

Json json_of(const PlacedSet& set) { return {{"file", set.file}, {"tensors", list_of(set.tensors)}}; }
PlacedSet set_of(const Json& json) {
  PlacedSet set{.file = json.at("file").get<std::string>(), .tensors = {}};
  for (const Json& tensor : json.at("tensors")) set.tensors.push_back(tensor_of(tensor));
  return set;
}

Json json_of(const StatePlan& plan) {
  return {{"folder", plan.folder},
          {"retention", {plan.retention.keep, plan.retention.best, plan.retention.smaller_is_better}},
          {"region", plan.region},
          {"constant", format_state(plan.constant)},
          {"buffer_bytes", plan.buffer_bytes},
          {"frozen", {plan.frozen_areas, plan.frozen_bytes, plan.frozen_number}},
          {"record", {plan.loss, plan.gradient_norm, plan.samples, plan.skipped}},
          {"counts", plan.counts},
          {"parameters", plan.parameters},
          {"kept", list_of(plan.kept)},
          {"place", list_of(plan.place)},
          {"files", list_of(plan.files)}};
}
StatePlan state_plan_of(const Json& json) {
  const Json &retention = json.at("retention"), &frozen = json.at("frozen"), &record = json.at("record");
  StatePlan plan = {.folder = json.at("folder").get<std::string>(),
                    .retention = {.keep = retention.at(0).get<int>(),
                                  .best = retention.at(1).get<int>(),
                                  .smaller_is_better = retention.at(2).get<bool>()},
                    .region = json.at("region").get<int>(),
                    .constant = parse_state(json.at("constant").get<std::string>(), "the plan of a state"),
                    .buffer_bytes = json.at("buffer_bytes").get<std::uint64_t>(),
                    .frozen_areas = frozen.at(0).get<std::uint64_t>(),
                    .frozen_bytes = frozen.at(1).get<std::uint64_t>(),
                    .frozen_number = frozen.at(2).get<std::uint64_t>(),
                    .loss = record.at(0).get<std::uint64_t>(),
                    .gradient_norm = record.at(1).get<std::uint64_t>(),
                    .samples = record.at(2).get<std::uint64_t>(),
                    .skipped = record.at(3).get<std::uint64_t>(),
                    .counts = json.at("counts").get<std::uint64_t>(),
                    .parameters = json.at("parameters").get<std::vector<std::string>>(),
                    .kept = {},
                    .place = {},
                    .files = {}};
  for (const Json& bytes : json.at("kept")) plan.kept.push_back(kept_bytes_of(bytes));
  for (const Json& number : json.at("place")) plan.place.push_back(kept_number_of(number));
  for (const Json& set : json.at("files")) plan.files.push_back(set_of(set));
  return plan;
}

}  // namespace

Contents contents_at(const StatePlan& plan, std::span<const std::byte> region, const base::Commit& commit) {
  const Buffer buffer(plan, region, commit.buffer);
  Contents contents{.state = plan.constant, .files = {}};
  contents.state.step = commit.step;
  contents.state.loss = buffer.number<double>(plan.loss);
  contents.state.gradient_norm = buffer.number<double>(plan.gradient_norm);
  contents.state.samples = buffer.number<std::int64_t>(plan.samples);
  contents.state.skipped = buffer.number<std::uint64_t>(plan.skipped);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i)
    contents.state.updates.emplace(plan.parameters[i],
                                   buffer.number<std::uint64_t>(plan.counts + i * sizeof(std::uint64_t)));
  for (const PlacedBytes& kept : plan.kept)
    contents.state.kept.emplace(
        kept.name, std::string(reinterpret_cast<const char*>(buffer.at(kept.offset, kept.size)), kept.size));
  contents.state.place = numbers_in(contents.state.kept, plan.place);
  for (const PlacedSet& set : plan.files) {
    TensorSet& file = contents.files.emplace_back(TensorSet{.file = set.file, .tensors = {}});
    for (const PlacedTensor& tensor : set.tensors) {
      const std::uint64_t bytes = bytes_of(tensor);
      file.tensors.push_back({tensor.name, tensor.dtype, tensor.sizes, tensor.strides,
                              tensor.frozen ? buffer.frozen(tensor.offset, bytes) : buffer.at(tensor.offset, bytes)});
    }
  }
  return contents;
}

std::string format_plans(const std::vector<StatePlan>& plans) {
  try {
    return list_of(plans).dump();
  } catch (const Json::type_error&) {
    throw UsageError("checkpoint: a name, or the path of the folder, is no UTF-8");
  }
}

std::vector<StatePlan> parse_plans(std::string_view text) {
  try {
    std::vector<StatePlan> plans;
    for (const Json& plan : Json::parse(text).get<std::vector<Json>>()) plans.push_back(state_plan_of(plan));
    return plans;
  } catch (const Json::exception& error) {
    throw UsageError("checkpoint: no plan of a state: " + std::string(error.what()));
  }
}

}  // namespace lockstep::checkpoint

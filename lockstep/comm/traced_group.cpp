#include "lockstep/comm/traced_group.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/messages.h"
#include "lockstep/rendezvous/run_id.h"
#include "lockstep/trace/black_box.h"

namespace lockstep::comm {
namespace {

constexpr std::size_t kMostCalls = 1'000'000;

const char* name_of(ReduceOp op) {
  constexpr const char* names[] = {"sum", "mean", "min", "max", "product"};
  return names[int(op)];
}

trace::Call reduction(const char* kind, const at::Tensor& tensor, ReduceOp op) {
  trace::Call call = call_of(kind, tensor);
  call.detail_name = "op";
  call.detail_text = name_of(op);
  return call;
}

trace::Call message_call(const Message& message) {
  const CollectiveNote& note = message.note;
  trace::Call call{.kind = message.way == Way::send ? "send" : "recv",
                   .dtype = c10::toString(c10::ScalarType(note.dtype)),
                   .detail_name = "tag",
                   .detail = note.detail,
                   .elements = note.elements,
                   .dimensions = 1};
  call.sizes[0] = note.elements;
  if (note.collective == Collective::monitored_barrier) {
    call.dtype = "";
    call.detail_name = "of monitored_barrier";
    call.detail = -1;
  }
  return call;
}

// Tells the log when messages begin and when they have been moved.
class LoggedMessages final : public Messages {
 public:
  LoggedMessages(Messages& messages, CallLog& log) : messages_(messages), log_(log) {}

  Message* next() override {
    Message* const message = messages_.next();
    if (message != nullptr) under_way_.emplace_back(message, log_.begin_message(message_call(*message), message->peer));
    return message;
  }
  // What moved() does may make another use of the message.
  void moved(Message& message) override {
    const auto found =
        std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& one) { return one.first == &message; });
    log_.end(found->second);
    under_way_.erase(found);
    messages_.moved(message);
  }

 private:
  Messages& messages_;
  CallLog& log_;
  std::vector<std::pair<Message*, std::uint64_t>> under_way_;
};

// 0 where they are too many for a number.
std::int64_t elements_of(at::IntArrayRef sizes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(elements, size, &elements)) return 0;
  return elements;
}

std::size_t capacity_of(const rendezvous::GetEnv& get) {
  const char* const value = get("LOCKSTEP_TRACE_BUFFER_SIZE");
  if (value == nullptr || *value == '\0') return TraceSettings().capacity;
  const std::string_view text = value;
  std::size_t capacity = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), capacity);
  if (error != std::errc() || end != text.data() + text.size() || capacity > kMostCalls)
    throw UsageError("LOCKSTEP_TRACE_BUFFER_SIZE is '" + std::string(text) + "': a number of calls from 0 to " +
                     std::to_string(kMostCalls) + " expected");
  return capacity;
}

// A launcher that has no folder for logs names a descriptor of its own.
std::string folder_of_error_file(const rendezvous::GetEnv& get) {
  const char* const file = get("TORCHELASTIC_ERROR_FILE");
  if (file == nullptr || std::string_view(file).starts_with("/proc/")) return "";
  return std::filesystem::path(file).parent_path().string();
}

}  // namespace

TracedGroup::TracedGroup(std::shared_ptr<Group> inner, std::unique_ptr<CallLog> log)
    : WrappedGroup(std::move(inner)), log_(std::move(log)) {}

void TracedGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  logged(log_.get(), reduction("all_reduce", tensor, op), [&] { inner().all_reduce(tensor, op); });
}

void TracedGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  logged(log_.get(), reduction("reduce_scatter", output, op), [&] { inner().reduce_scatter(output, input, op); });
}

void TracedGroup::broadcast(const at::Tensor& tensor, int root) {
  trace::Call call = call_of("broadcast", tensor);
  call.detail_name = "root";
  call.detail = root;
  logged(log_.get(), call, [&] { inner().broadcast(tensor, root); });
}

std::vector<at::Tensor> TracedGroup::all_gather(const at::Tensor& tensor) {
  std::vector<at::Tensor> all;
  logged(log_.get(), call_of("all_gather", tensor), [&] { all = inner().all_gather(tensor); });
  return all;
}

void TracedGroup::barrier() {
  logged(log_.get(), {.kind = "barrier"}, [&] { inner().barrier(); });
}

void TracedGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  logged(log_.get(), call_of("all_to_all", input), [&] { inner().all_to_all(output, input); });
}

void TracedGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  logged(log_.get(), call_of("all_gather", input), [&] { inner().all_gather_into_tensor(output, input); });
}

void TracedGroup::carry(Messages& messages) {
  if (!log_->keeps()) return inner().carry(messages);
  LoggedMessages logged(messages, *log_);
  try {
    inner().carry(logged);
  } catch (...) {
    log_->write_if_over();
    throw;
  }
}

std::shared_ptr<Group> TracedGroup::new_group(const std::vector<int>& ranks) {
  std::shared_ptr<Group> made;
  logged(log_.get(), {.kind = "new_group"}, [&] { made = inner().new_group(ranks); });
  if (made != nullptr) return std::make_shared<TracedGroup>(std::move(made), log_->part(ranks));
  log_->skip_part();
  return nullptr;
}

at::Tensor TracedGroup::shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  at::Tensor made;
  trace::Call call{.kind = "shared_empty",
                   .dtype = c10::toString(dtype),
                   .elements = elements_of(sizes),
                   .dimensions = std::uint32_t(sizes.size())};
  std::copy_n(sizes.begin(), std::min(sizes.size(), call.sizes.size()), call.sizes.begin());
  logged(log_.get(), call, [&] { made = inner().shared_empty(sizes, dtype); });
  return made;
}

bool TracedGroup::abort(const std::string& cause, int exit_code) {
  const bool first = inner().abort(cause, exit_code);
  log_->write_if_over();
  return first;
}

TraceSettings trace_settings(const std::string& folder, const rendezvous::GetEnv& get) {
  TraceSettings settings{.folder = folder, .capacity = capacity_of(get)};
  if (const char* const given = get("LOCKSTEP_TRACE_DIR"); settings.folder.empty() && given != nullptr)
    settings.folder = given;
  if (settings.folder.empty()) settings.folder = folder_of_error_file(get);
  if (settings.capacity == 0) settings.folder.clear();
  return settings;
}

std::shared_ptr<Group> traced(std::shared_ptr<Group> world, const rendezvous::Place& place,
                              const TraceSettings& settings) {
  const Topology& topology = world->topology();
  if (settings.folder.empty() && topology.world == 1) return world;
  const bool one_node = topology.nodes == 1;  // each node's agent is a process of its own
  std::shared_ptr<trace::BlackBox> box;
  if (!settings.folder.empty())
    box = std::make_shared<trace::BlackBox>(
        trace::BoxSettings{.folder = settings.folder,
                           .capacity = settings.capacity,
                           .run = one_node ? rendezvous::run_id(place) : place.launcher + " " + place.meeting_key,
                           .attempt = place.restart_count,
                           .rank = topology.rank,
                           .world = topology.world,
                           .first_rank = topology.rank - topology.local_rank},
        world->node());
  std::vector<int> ranks(std::size_t(topology.world));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto log = std::make_unique<CallLog>(std::move(box), "world", std::move(ranks));
  return std::make_shared<TracedGroup>(std::move(world), std::move(log));
}

}  // namespace lockstep::comm

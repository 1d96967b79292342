#include "lockstep/launch/report/inquiry.h"

#include <utility>

namespace lockstep::launch {

Inquiry::Inquiry(base::ControlPage& page, std::vector<ErrorFile> error_files)
    : page_(page), error_files_(std::move(error_files)) {}

void Inquiry::open(const End& end) {
  const std::uint32_t generation = page_.generation.load();
  if (!raise_abort(page_, generation, failure_of(end, whereabouts(page_, end.rank))))
    told_ = read_failure(page_, generation);
}

Verdict Inquiry::first(const std::vector<End>& ends) const {
  std::vector<Recorded> recorded;
  for (std::size_t rank = 0; rank < error_files_.size(); ++rank)
    if (const auto when = error_files_[rank].written()) recorded.push_back({int(rank), *when});
  return first_failure(ends, told_, recorded);
}

void Inquiry::explain(Verdict& verdict, OutOfMemoryWatch& kernel) const {
  verdict.error = error_files_[std::size_t(verdict.end.rank)].read();
  // A shell reports the death of the program it ran as an exit code.
  verdict.out_of_memory = kernel.explain(verdict.end.pid, exit_code(verdict.end) - 128);
}

}  // namespace lockstep::launch

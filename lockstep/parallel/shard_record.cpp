#include "lockstep/parallel/shard_record.h"

namespace lockstep::parallel {

void add(state::ShardRecord& record, const state::ShardRecord& more) {
  if (record.samples == 0) {
    record = more;
  } else if (more.samples != 0) {
    record.samples += more.samples;
    record.loss += (more.loss - record.loss) * (double(more.samples) / double(record.samples));
  }
}

}  // namespace lockstep::parallel

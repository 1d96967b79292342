#include "benchmarks/step/copy.h"

#include <immintrin.h>

#include <cstring>

#include "lockstep/base/segment.h"

namespace lockstep::bench {
namespace {

using Copy = void (*)(float* to, const float* from, std::size_t n);

void copy_memcpy(float* to, const float* from, std::size_t n) { std::memcpy(to, from, n * sizeof(float)); }

__attribute__((target("avx512f"))) void copy_plain_512(float* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 16) _mm512_store_ps(to + i, _mm512_load_ps(from + i));
}
__attribute__((target("avx512f"))) void copy_streaming_512(float* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 16) _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
  _mm_sfence();
}
void copy_plain_128(float* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 4) _mm_store_ps(to + i, _mm_load_ps(from + i));
}
void copy_streaming_128(float* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
  _mm_sfence();
}

struct Way {
  const char* name;
  Copy copy;
};

std::vector<Way> ways() {
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  return {{"memcpy", copy_memcpy},
          {"plain stores", wide ? copy_plain_512 : copy_plain_128},
          {"streaming stores", wide ? copy_streaming_512 : copy_streaming_128}};
}

// Two areas of the segment; the second starts elsewhere in its page than the first, so that
// loads do not wait for unrelated stores.
struct Areas {
  static constexpr std::size_t kStagger = 2048;

  Areas(comm::Group& group, std::size_t bytes, Pages page_kind) : pages(page_kind) {
    const PagesScope scope(pages);
    base::Node& node = group.node();
    floats = bytes / std::size_t(group.size()) / 64 * 16;
    const std::size_t total = 2 * bytes + kStagger;
    if (group.topology().local_rank == 0) node.segment.grow(base::Area::tensors, total);
    group.barrier();
    mapping = node.segment.map(node.segment.extent(base::Area::tensors).offset, total, base::Access::read_write);
    from = reinterpret_cast<float*>(mapping.data()) + floats * std::size_t(group.rank());
    to = reinterpret_cast<float*>(mapping.data() + bytes + kStagger) + floats * std::size_t(group.rank());
    std::memset(to, 1, floats * sizeof(float));
  }

  Pages pages;
  base::Mapping mapping;
  float* from;
  float* to;
  std::size_t floats;  ///< of this rank
};

class CopyContender final : public Contender {
 public:
  CopyContender(std::shared_ptr<comm::Group> group, std::shared_ptr<Areas> areas, Way way)
      : group_(std::move(group)), areas_(std::move(areas)), way_(way) {}
  std::string name() const override { return std::string("copy, ") + way_.name + ", " + to_string(areas_->pages); }
  std::string kind() const override { return "floor"; }
  double bytes() const override { return 2.0 * sizeof(float) * double(areas_->floats) * group_->size(); }
  std::string page_size() const override { return base::page_size(areas_->mapping.data()); }
  void prepare(const Gradients&) override {
    std::memset(areas_->from, ++round_ & 0x3f, areas_->floats * sizeof(float));
  }
  void run() override {
    group_->barrier();
    way_.copy(areas_->to, areas_->from, areas_->floats);
    group_->barrier();
  }

 private:
  std::shared_ptr<comm::Group> group_;
  std::shared_ptr<Areas> areas_;
  Way way_;
  int round_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Contender>> make_copies(const std::shared_ptr<comm::Group>& group, std::size_t bytes,
                                                    Pages pages) {
  bytes = bytes / 4096 * 4096;
  auto areas = std::make_shared<Areas>(*group, bytes, pages);
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const Way& way : ways()) contenders.push_back(std::make_unique<CopyContender>(group, areas, way));
  return contenders;
}

}  // namespace lockstep::bench

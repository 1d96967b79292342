#include "benchmarks/checkpoint/trainee.h"

#include <sys/stat.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/store/manifest.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/models/registry.h"

namespace lockstep::bench {
namespace {

// Pictures so small that a step is short beside a save: the longer one lasts, the more of them feel it.
constexpr models::ImageTask kPictures{.channels = 3, .height = 64, .width = 64, .classes = 1000};
constexpr std::int64_t kBatch = 4;
constexpr optim::AdamOptions kAdam{.lr = 1e-4};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// When the files of a checkpoint were on disk and had yet to be read back: the manifest is written last. Monotonic.
double written_at(const std::string& checkpoint) {
  struct stat info {};
  if (::stat((checkpoint + "/" + checkpoint::kManifestName).c_str(), &info) != 0)
    throw Error("bench checkpoint: no manifest in '" + checkpoint + "'");
  const double seconds = double(info.st_mtim.tv_sec) + 1e-9 * double(info.st_mtim.tv_nsec);
  return seconds + now() - std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::shared_ptr<models::ImageModel> new_model(const std::string& name) {
  torch::manual_seed(0);
  return models::make_model(name, kPictures);
}

// Private and shared memory of this process, without pages of files.
std::int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::int64_t kib = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:")) {
      std::istringstream words(line.substr(line.find(':') + 1));
      std::int64_t part = 0;
      words >> part;
      kib += part;
    }
  return kib * 1024;
}

std::int64_t bytes_below(const std::string& folder) {
  std::int64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) total += std::int64_t(entry.file_size());
  return total;
}

}  // namespace

Trainee::Trainee(const std::string& model, std::shared_ptr<comm::Group> group, std::string folder, Saving saving)
    : name_(model),
      group_(std::move(group)),
      folder_(std::move(folder)),
      saving_(saving),
      model_(new_model(name_)),
      ddp_(model_, group_) {
  if (saving_ == Saving::background) saver_.emplace(folder_, ddp_, checkpoint::Retention{.keep = 1});
  optimizer_.emplace(ddp_, kAdam);
  torch::manual_seed(1 + std::uint64_t(group_->rank()));
  data_ = torch::randn({kBatch, kPictures.channels, kPictures.height, kPictures.width});
  target_ = torch::randint(kPictures.classes, {kBatch}, at::kLong);
}

void Trainee::step() {
  torch::nn::functional::cross_entropy(ddp_(data_), target_).backward();
  optimizer_->step();
}

std::vector<double> Trainee::steps(int count) {
  std::vector<double> times{now()};
  for (int i = 0; i < count; ++i) {
    step();
    times.push_back(now());
  }
  return times;
}

std::string Trainee::newest() const {
  std::error_code none;
  return std::filesystem::read_symlink(folder_ + "/last", none).string();
}

Trainee::Save Trainee::save(int count) {
  const std::string before = newest();
  const std::int64_t resident = resident_bytes();
  Save found{.times = {now()}};
  checkpoint::Saved saved;
  if (saving_ == Saving::background)
    saver_->save();
  else
    saved = checkpoint::save(folder_, ddp_, {.retention = {.keep = 1}});
  for (int i = 0; i < count; ++i) {
    step();
    found.times.push_back(now());
    found.additional_bytes = std::max(found.additional_bytes, resident_bytes() - resident);
    if (found.whole == 0 && newest() != before) found.whole = found.times.back();
  }
  if (saving_ == Saving::background) saved = saver_->wait();
  if (found.whole == 0) found.whole = now();
  if (!saved.problem.empty()) throw Error("bench checkpoint: " + saved.problem);
  if (group_->rank() != 0) return found;
  found.bytes = bytes_below(saved.path);
  found.written = written_at(saved.path);
  return found;
}

double Trainee::load_weights() {
  const double began = now();
  checkpoint::load(folder_, ddp_);
  return now() - began;
}

double Trainee::load_all() {
  const Net model = new_model(name_);
  const double began = now();
  Ddp ddp(model, std::make_shared<comm::SingleGroup>());
  checkpoint::resume(folder_, ddp, "last");
  const optim::Adam optimizer(ddp, kAdam);
  return now() - began;
}

}  // namespace lockstep::bench

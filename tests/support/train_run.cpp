#include "tests/support/train_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace lockstep::testing {
namespace {

using Json = nlohmann::ordered_json;

std::string big_endian(unsigned value) {
  return {char(value >> 24), char(value >> 16 & 0xff), char(value >> 8 & 0xff), char(value & 0xff)};
}

bool runs(const std::vector<std::string>& command) { return Job(command).wait() == 0; }

std::string look_for(By launcher) {
  if (launcher == By::mpirun && !runs({"/usr/bin/env", "mpirun", "--version"})) return "no mpirun on this machine";
  if (launcher == By::torchrun && !runs({PYTHON_TORCH, "-c", "import torch.distributed.run"}))
    return "no Python that can import torch (scripts/bootstrap --tests installs one)";
  return "";
}

Json part_of(const Json& event, const std::vector<std::string>& names) {
  Json part;
  for (const std::string& name : names) part[name] = event.at(name);
  return part;
}

std::vector<Json> events(const std::string& metrics_jsonl) {
  if (!metrics_jsonl.empty() && metrics_jsonl.back() != '\n') throw std::runtime_error("the last line is cut");
  std::vector<Json> found;
  for (const std::string& line : lines(metrics_jsonl)) found.push_back(Json::parse(line));
  return found;
}

}  // namespace

std::string idx_labels(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes = big_endian(0x801) + big_endian(unsigned(count));
  for (int i = 0; i < count; ++i) bytes += char(random() % 10);
  return bytes;
}

std::string idx_images(int count, unsigned seed) {
  const std::string labels = idx_labels(count, seed).substr(8);
  std::mt19937 random(seed + 1);
  std::string bytes = big_endian(0x803) + big_endian(unsigned(count)) + big_endian(28) + big_endian(28);
  for (const char label : labels)
    for (int pixel = 0; pixel < 28 * 28; ++pixel)
      bytes += char((pixel / 28 / 2 == label ? 90 : 0) + int(random() % 160));
  return bytes;
}

std::string write_mnist(const ScratchFolder& folder, const std::string& name) {
  folder.write(name + "/train-images-idx3-ubyte", idx_images(kTrainImages, 1));
  folder.write(name + "/train-labels-idx1-ubyte", idx_labels(kTrainImages, 1));
  folder.write(name + "/t10k-images-idx3-ubyte", idx_images(kTestImages, 2));
  folder.write(name + "/t10k-labels-idx1-ubyte", idx_labels(kTestImages, 2));
  return folder.file(name);
}

const char* to_string(By launcher) {
  return launcher == By::lockstep ? "lockstep" : launcher == By::torchrun ? "torchrun" : "mpirun";
}

std::string why_not(By launcher) {
  std::string reason = look_for(launcher);
  if (!reason.empty() && getenv("LOCKSTEP_REQUIRE_LAUNCHERS") != nullptr) throw std::runtime_error(reason);
  return reason;
}

std::vector<std::string> train_command(By launcher, int processes, const std::vector<std::string>& flags) {
  const std::string count = std::to_string(processes);
  std::vector<std::string> command;
  if (launcher == By::torchrun)
    command = {PYTHON_TORCH, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, "--no-python"};
  if (launcher == By::mpirun) command = mpirun(processes);
  command.insert(command.end(), {LOCKSTEP_PROGRAM, "train"});
  if (launcher == By::lockstep) command.insert(command.end(), {"-n", count});
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::vector<std::string> rank_variables(int rank, int world, int port) {
  const std::string r = std::to_string(rank);
  const std::string w = std::to_string(world);
  return {"RANK=" + r,
          "WORLD_SIZE=" + w,
          "LOCAL_RANK=" + r,
          "LOCAL_WORLD_SIZE=" + w,
          "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + std::to_string(port)};
}

std::vector<std::string> results(const std::string& metrics_jsonl) {
  std::vector<std::string> found;
  for (const Json& event : events(metrics_jsonl)) {
    const std::string kind = event.at("event");
    if (kind == "train") found.push_back("train " + part_of(event, {"step", "epoch", "loss", "lr"}).dump());
    if (kind == "eval") found.push_back("eval " + part_of(event, {"step", "epoch", "loss", "top1", "samples"}).dump());
    if (kind == "done") found.push_back("done " + part_of(event, {"steps", "weights_hash"}).dump());
  }
  return found;
}

std::string weights_hash(const std::string& metrics_jsonl) { return events(metrics_jsonl).back().at("weights_hash"); }

std::vector<std::string> everything_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace lockstep::testing

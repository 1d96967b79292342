#include "lockstep/checkpoint/store/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/verify.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const FileEntry& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::string megabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", double(bytes) / 1e6);
  return text;
}

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::vector<Listed> list(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw UsageError("'" + base::shown(folder) + "' is no folder; a folder of checkpoints, or a run's, expected");
  const auto last = linked_step(folder, kLastName), best = linked_step(folder, kBestName);
  std::vector<Listed> all;
  for (const std::uint64_t step : newest_first(steps_in(folder), last)) {
    Listed& one = all.emplace_back(
        Listed{.step = step, .path = folder + "/" + step_name(step), .last = step == last, .best = step == best});
    try {
      const Manifest manifest = read_manifest(one.path);
      one.weights = manifest.weights;
      one.bytes = bytes_of(manifest);
      one.metric = read_state(one.path).metric;
    } catch (const UsageError& fault) {
      one.fault = fault.what();
    }
  }
  return all;
}

std::string list_as_text(const std::vector<Listed>& all) {
  if (all.empty()) return "no checkpoints\n";
  std::string text = "step        size        metric      weights hash\n";
  for (const Listed& one : all) {
    text += padded(std::to_string(one.step), 12);
    if (one.fault.empty())
      text += padded(megabytes(one.bytes), 12) + padded(one.metric ? text_of(*one.metric) : "-", 12) + one.weights;
    else
      text += "damaged: " + base::shown(one.fault);
    text += std::string(one.last ? "  last" : "") + (one.best ? "  best" : "") + "\n";
  }
  return text;
}

std::string list_as_json(const std::vector<Listed>& all) {
  Json checkpoints = Json::array();
  for (const Listed& one : all) {
    Json entry{{"step", one.step}, {"path", base::shown(one.path)}, {"last", one.last}, {"best", one.best}};
    if (one.fault.empty()) {
      entry["bytes"] = one.bytes;
      entry["metric"] = one.metric ? finite(*one.metric) : Json(nullptr);
      entry["weights_hash"] = one.weights;
    } else {
      entry["fault"] = base::shown(one.fault);
    }
    checkpoints.push_back(std::move(entry));
  }
  return Json{{"checkpoints", std::move(checkpoints)}}.dump(2) + "\n";
}

std::string contents_as_text(const Manifest& manifest, const SavedState& state) {
  std::string text = "step          " + std::to_string(manifest.step) + "\nweights hash  " + manifest.weights +
                     "\nloss          " + text_of(state.loss) + "\nseed          " + std::to_string(state.seed) +
                     "\nshards        " + std::to_string(state.shards) + "\nthreads       " +
                     std::to_string(state.threads) + "\noptimizer     " + base::shown(state.optimizer) + "\n";
  if (state.metric) text += "metric        " + text_of(*state.metric) + "\n";
  for (const auto& [name, value] : state.place) text += padded(base::shown(name), 14) + std::to_string(value) + "\n";
  for (const auto& [name, bytes] : state.kept)
    text += "kept          " + base::shown(name) + ", " + std::to_string(bytes.size()) + " bytes\n";
  if (state.extra != "null") text += "extra         " + base::shown(state.extra) + "\n";
  for (const auto& [name, version] : state.versions)
    text += padded(base::shown(name), 14) + base::shown(version) + "\n";
  for (const FileEntry& file : manifest.files) {
    text += "\n" + base::shown(file.name) + ", " + std::to_string(file.bytes) + " bytes\n";
    for (const Piece& piece : file.pieces)
      if (!piece.name.empty())
        text += "  " + padded(std::to_string(piece.end - piece.begin), 12) + base::shown(piece.name) + "\n";
  }
  return text;
}

std::string contents_as_json(const Manifest& manifest, const SavedState& state) {
  Json files = Json::array();
  for (const FileEntry& file : manifest.files) {
    Json tensors = Json::object();
    for (const Piece& piece : file.pieces)
      if (!piece.name.empty()) tensors[base::shown(piece.name)] = piece.end - piece.begin;
    files.push_back(
        {{"name", base::shown(file.name)}, {"bytes", file.bytes}, {"hash", file.hash}, {"tensors", tensors}});
  }
  Json json{{"step", manifest.step},
            {"weights_hash", manifest.weights},
            {"loss", finite(state.loss)},
            {"seed", state.seed},
            {"shards", state.shards},
            {"threads", state.threads},
            {"optimizer", base::shown(state.optimizer)},
            {"metric", state.metric ? finite(*state.metric) : Json(nullptr)},
            {"place", state.place},
            {"extra", Json::parse(state.extra)},
            {"files", std::move(files)}};
  return json.dump(2) + "\n";
}

}  // namespace lockstep::checkpoint

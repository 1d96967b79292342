// Lets the Python tests look at decoded and transformed pictures:
//   image_probe < request.json
// Request: {"output": file, "cases": [{"file": picture, "steps": [[name, arguments...], ...],
// "normalize": {...} or null, "later": whether a JPEG file is decoded as far as the steps need}]}. Prints one
// line per case, {"shape": [height, width, channels], "bytes"} or {"error": message}, and appends the pixels or the
// normalised numbers to the output file.
//
//   image_probe crops < {"image", "count"}
// Prints the boxes that RandomResizedCrop draws for the first samples: top, left, height, width;
// image_probe erasings: those of RandomErasing.
//
//   image_probe policies < {"image"}
// Prints the tables of AutoAugment, RandAugment, TrivialAugmentWide and AugMix.
//
//   image_probe mix < {"input", "output", "cases": [{"how": "mixup" or "cutmix", "lambda", "row", "column", "shape",
// "channels_last", "bfloat16", "labels", "classes"}]}
// Reads the numbers of a batch of each case from the input file, one behind the other, and appends them, mixed, and
// the soft targets to the output file.
//
//   image_probe betas < {"alpha", "count"}
// Prints draws of Beta(alpha, alpha). image_probe shares < {"alpha", "count", "of"}: the last of each draw of the
// Dirichlet distribution of so many.
//
//   image_probe perspective < {"from", "to"}: [x, y] of four corners each
// Prints the coefficients of the perspective that takes the pixels of `to` from those of `from`.
//
//   image_probe folder < {"path"}
// Prints the classes and the [path, label] of the samples of an ImageFolder.

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/transforms/augment.h"
#include "lockstep/data/transforms/augmix.h"
#include "lockstep/data/transforms/blur.h"
#include "lockstep/data/transforms/color.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/elastic.h"
#include "lockstep/data/transforms/gamma.h"
#include "lockstep/data/transforms/geometry.h"
#include "lockstep/data/transforms/mixup.h"
#include "lockstep/data/transforms/multi_crop.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/data/transforms/perspective.h"
#include "lockstep/data/transforms/random_color.h"
#include "lockstep/data/transforms/random_erasing.h"

namespace {

using nlohmann::json;
using namespace lockstep;
using data::Picture;

using Step = void (*)(Picture& picture, const json& arguments);

data::Interpolation interpolation(const std::string& name) {
  static const std::map<std::string, data::Interpolation> kNames = {
      {"nearest", data::Interpolation::nearest}, {"bilinear", data::Interpolation::bilinear},
      {"bicubic", data::Interpolation::bicubic}, {"box", data::Interpolation::box},
      {"hamming", data::Interpolation::hamming}, {"lanczos", data::Interpolation::lanczos}};
  return kNames.at(name);
}

data::Border border(const json& mode, const json& fill) {
  static const std::map<std::string, data::PaddingMode> kNames = {{"constant", data::PaddingMode::constant},
                                                                  {"edge", data::PaddingMode::edge},
                                                                  {"reflect", data::PaddingMode::reflect},
                                                                  {"symmetric", data::PaddingMode::symmetric}};
  return {kNames.at(mode), fill};
}

const std::vector<std::string> kOperations = {"Identity",  "ShearX",     "ShearY",       "TranslateX", "TranslateY",
                                              "Rotate",    "Brightness", "Color",        "Contrast",   "Sharpness",
                                              "Posterize", "Solarize",   "AutoContrast", "Equalize",   "Invert"};

data::AugmentOp operation(const std::string& name) {
  const auto place = std::ranges::find(kOperations, name);
  if (place == kOperations.end()) throw std::invalid_argument("no operation " + name);
  return data::AugmentOp(place - kOperations.begin());
}

data::AugMixDraws augmix_draws(const json& a) {
  data::AugMixDraws draws{.balance = a.at("balance"), .shares = a.at("shares")};
  for (const json& chain : a.at("chains")) {
    auto& operations = draws.chains.emplace_back();
    for (const json& one : chain) operations.push_back({operation(one.at(0)), one.at(1)});
  }
  return draws;
}

void apply(const data::Transform& transform, Picture& picture) {
  base::RandomStream random(0, 0, 0);
  transform.apply(picture, random);
}

// arguments[0] is the name of the step.
const std::map<std::string, Step> kSteps = {
    // height, width, interpolation
    {"resize",
     [](Picture& p, const json& a) {
       apply(data::Resize({a.at(1), a.at(2)}, interpolation(a.at(3))), p);
     }},
    // height, width, interpolation, left, top, right, bottom
    {"resize_box",
     [](Picture& p, const json& a) {
       const data::Box box{a.at(4), a.at(5), a.at(6), a.at(7)};
       p.replace(resize(p.pixels(), {a.at(1), a.at(2)}, interpolation(a.at(3)), box));
     }},
    // edge, max_size or null, interpolation
    {"resize_edge",
     [](Picture& p, const json& a) {
       const std::optional<int> max_size = a.at(2).is_null() ? std::optional<int>() : a.at(2).get<int>();
       apply(data::Resize(a.at(1).get<int>(), interpolation(a.at(3)), max_size), p);
     }},
    // top, left, height, width
    {"crop",
     [](Picture& p, const json& a) {
       p.crop(a.at(1), a.at(2), {a.at(3), a.at(4)});
     }},
    // left, top, right, bottom, mode, fill
    {"pad",
     [](Picture& p, const json& a) {
       p.replace(pad(p.pixels(), {a.at(1), a.at(2), a.at(3), a.at(4)}, border(a.at(5), a.at(6))));
     }},
    // height, width
    {"center_crop",
     [](Picture& p, const json& a) {
       apply(data::CenterCrop({a.at(1), a.at(2)}), p);
     }},
    {"hflip", [](Picture& p, const json&) { p.mirror(); }},
    {"vflip", [](Picture& p, const json&) { apply(data::RandomVerticalFlip(1), p); }},
    // angle, [right, down], scale, [shear along x, along y], interpolation, fill
    {"affine",
     [](Picture& p, const json& a) {
       const data::AffineOptions options{.center = {p.size().width * 0.5, p.size().height * 0.5},
                                         .angle = a.at(1),
                                         .translate = a.at(2),
                                         .scale = a.at(3),
                                         .shear = a.at(4)};
       p.replace(warp(p.pixels(), p.size(), affine_matrix(options), {interpolation(a.at(5)), a.at(6)}));
     }},
    // matrix, interpolation, fill
    {"perspective",
     [](Picture& p, const json& a) {
       const data::PerspectiveMatrix matrix = a.at(1);
       p.replace(warp_perspective(p.pixels(), matrix, {interpolation(a.at(2)), a.at(3)}));
     }},
    // [columns, rows] of the kernel, [sigma across, down]
    {"blur", [](Picture& p, const json& a) { p.replace(data::gaussian_blur(p.pixels(), a.at(1), a.at(2))); }},
    // displacements to the right and down, interpolation, fill
    {"elastic",
     [](Picture& p, const json& a) {
       const data::Displacement displacement{{p.size(), 1, a.at(1)}, {p.size(), 1, a.at(2)}};
       p.replace(elastic_transform(p.pixels(), displacement, {interpolation(a.at(3)), a.at(4)}));
     }},
    // which of them, height, width (and vertical_flip)
    {"five_crop",
     [](Picture& p, const json& a) {
       p = data::FiveCrop({a.at(2), a.at(3)}).apply(p).at(a.at(1));
     }},
    {"ten_crop",
     [](Picture& p, const json& a) {
       p = data::TenCrop({a.at(2), a.at(3)}, {.vertical_flip = a.at(4)}).apply(p).at(a.at(1));
     }},
    // degrees, interpolation, expand, fill
    {"rotate",
     [](Picture& p, const json& a) {
       p.replace(rotate(p.pixels(), a.at(1), {interpolation(a.at(2)), a.at(4)}, a.at(3)));
     }},
    // operation, magnitude, interpolation, fill
    {"augment",
     [](Picture& p, const json& a) {
       p.replace(augmented(p.pixels(), operation(a.at(1)), a.at(2), {interpolation(a.at(3)), a.at(4)}));
     }},
    // {balance, shares, chains of [operation, magnitude]}, interpolation, fill
    {"augmix",
     [](Picture& p, const json& a) {
       p.replace(augmixed(p.pixels(), augmix_draws(a.at(1)), {interpolation(a.at(2)), a.at(3)}));
     }},
    {"hue", [](Picture& p, const json& a) { p.replace(data::adjust_hue(p.pixels(), a.at(1))); }},
    // channels
    {"grayscale", [](Picture& p, const json& a) { apply(data::Grayscale(a.at(1)), p); }},
    // With probability 1; bits, threshold, factor.
    {"RandomInvert", [](Picture& p, const json&) { apply(data::RandomInvert(1), p); }},
    {"RandomPosterize", [](Picture& p, const json& a) { apply(data::RandomPosterize(a.at(1), 1), p); }},
    {"RandomSolarize", [](Picture& p, const json& a) { apply(data::RandomSolarize(a.at(1), 1), p); }},
    {"RandomAdjustSharpness", [](Picture& p, const json& a) { apply(data::RandomAdjustSharpness(a.at(1), 1), p); }},
    {"RandomAutocontrast", [](Picture& p, const json&) { apply(data::RandomAutocontrast(1), p); }},
    {"RandomEqualize", [](Picture& p, const json&) { apply(data::RandomEqualize(1), p); }},
    {"RandomGrayscale", [](Picture& p, const json&) { apply(data::RandomGrayscale(1), p); }},
};

std::string normalized(const Picture& picture, const json& options) {
  const bool last = options.at("channels_last"), half = options.at("bfloat16");
  const data::Normalize normalize({.mean = options.at("mean"),
                                   .std = options.at("std"),
                                   .layout = last ? data::PixelLayout::channels_last : data::PixelLayout::planes,
                                   .type = half ? data::PixelType::bfloat16 : data::PixelType::float32});
  std::string bytes(normalize.slot(nullptr, picture.size(), picture.channels()).bytes(), '\0');
  const data::Slot slot = normalize.slot(bytes.data(), picture.size(), picture.channels());
  normalize.write(picture, slot);
  if (options.contains("erase")) {
    const json& box = options.at("erase");
    base::RandomStream unused(0, 0, 0);
    data::RandomErasing({.value = options.at("value")})
        .erase(slot, {box.at(0), box.at(1), {box.at(2), box.at(3)}}, unused);
  }
  return bytes;
}

std::string pixels(Picture& picture) {
  const data::Image image = copy_of(picture.pixels());
  return {image.row(0), image.row(0) + image.bytes()};
}

json run(const json& request, std::ofstream& output) {
  const std::string file = request.at("file");
  Picture picture = request.value("later", false) ? data::read_picture(file) : Picture(data::read_image(file));
  for (const json& step : request.at("steps")) kSteps.at(step.at(0))(picture, step);
  const json& options = request.at("normalize");
  const std::string bytes = options.is_null() ? pixels(picture) : normalized(picture, options);
  output.write(bytes.data(), std::streamsize(bytes.size()));
  return {{"shape", {picture.size().height, picture.size().width, picture.channels()}}, {"bytes", bytes.size()}};
}

void run_cases(const json& request) {
  std::ofstream output(request.at("output").get<std::string>(), std::ios::binary);
  output.exceptions(std::ios::badbit | std::ios::failbit);
  for (const json& one : request.at("cases")) {
    try {
      std::cout << run(one, output) << "\n";
    } catch (const UsageError& error) {
      std::cout << json{{"error", error.what()}} << "\n";
    }
  }
}

data::Size size(const json& pair) { return {pair.at(0), pair.at(1)}; }

void draw_crops(const json& request) {
  for (std::uint64_t index = 0; index < request.at("count"); ++index) {
    base::RandomStream random = data::transform_stream({.seed = 1, .index = index}, 0);
    const data::CropBox box = choose_crop(size(request.at("image")), {}, random);
    std::cout << box.top << " " << box.left << " " << box.size.height << " " << box.size.width << "\n";
  }
}

void draw_erasings(const json& request) {
  const data::RandomErasing erasing;
  for (std::uint64_t index = 0; index < request.at("count"); ++index) {
    base::RandomStream random = data::transform_stream({.seed = 1, .index = index}, 0);
    const data::CropBox box = erasing.choose(size(request.at("image")), random).value_or(data::CropBox{});
    std::cout << box.top << " " << box.left << " " << box.size.height << " " << box.size.width << "\n";
  }
}

json step_of(const data::PolicyStep& step) {
  return {kOperations.at(std::size_t(step.op)), step.probability, step.magnitude};
}

// The tables of the policies: magnitudes by space, operation and bins for a picture of "image"; pairs.
void print_policies(const json& request) {
  json tables, pairs;
  for (const auto& [name, space, bins] :
       {std::tuple("auto", data::AugmentSpace::standard, 10), std::tuple("rand", data::AugmentSpace::standard, 31),
        std::tuple("trivial", data::AugmentSpace::wide, 31), std::tuple("mix", data::AugmentSpace::mix, 10)}) {
    for (std::size_t op = 0; op < kOperations.size(); ++op) {
      const auto one = data::AugmentOp(op);
      tables[name][kOperations[op]] = {{"magnitudes", magnitudes(space, one, bins, size(request.at("image")))},
                                       {"signed", is_signed(one)}};
    }
  }
  for (const auto& [name, policy] :
       {std::pair("imagenet", data::AutoAugmentPolicy::imagenet),
        std::pair("cifar10", data::AutoAugmentPolicy::cifar10), std::pair("svhn", data::AutoAugmentPolicy::svhn)}) {
    for (const data::PolicyPair& pair : policy_pairs(policy)) {
      pairs[name].push_back({step_of(pair.first), step_of(pair.second)});
    }
  }
  std::cout << json{{"tables", tables}, {"pairs", pairs}} << "\n";
}

std::string mixed(const json& c, std::ifstream& input) {
  const json& shape = c.at("shape");
  data::Slots samples{{.data = nullptr,
                       .size = {shape.at(2), shape.at(3)},
                       .channels = shape.at(1),
                       .layout = c.at("channels_last") ? data::PixelLayout::channels_last : data::PixelLayout::planes,
                       .type = c.at("bfloat16") ? data::PixelType::bfloat16 : data::PixelType::float32},
                      shape.at(0)};
  std::string bytes(samples.first.bytes() * std::size_t(samples.count), '\0');
  input.read(bytes.data(), std::streamsize(bytes.size()));
  samples.first.data = bytes.data();
  double lambda = c.at("lambda");
  if (c.at("how") == "mixup") {
    mix_up(samples, lambda);
  } else {
    const data::CropBox box = data::cut_box(samples.first.size, lambda, c.at("row"), c.at("column"));
    cut_mix(samples, box);
    lambda = share_outside(samples.first.size, box);
  }
  const std::vector<std::int64_t> labels = c.at("labels");
  std::vector<float> targets(labels.size() * c.at("classes").get<std::size_t>());
  data::mix_labels(labels, lambda, c.at("classes"), targets.data());
  return bytes.append(reinterpret_cast<const char*>(targets.data()), targets.size() * sizeof(float));
}

void mix(const json& request) {
  std::ifstream input(request.at("input").get<std::string>(), std::ios::binary);
  std::ofstream output(request.at("output").get<std::string>(), std::ios::binary);
  input.exceptions(std::ios::badbit | std::ios::failbit);
  output.exceptions(std::ios::badbit | std::ios::failbit);
  for (const json& one : request.at("cases")) output << mixed(one, input);
}

void draw_betas(const json& request) {
  for (std::uint64_t batch = 0; batch < request.at("count"); ++batch) {
    base::RandomStream random = data::batch_stream({.seed = 1, .batch = batch});
    std::cout << json(data::draw_beta(request.at("alpha"), random)) << "\n";
  }
}

void draw_shares(const json& request) {
  for (std::uint64_t batch = 0; batch < request.at("count"); ++batch) {
    base::RandomStream random = data::batch_stream({.seed = 1, .batch = batch});
    std::cout << json(data::draw_dirichlet(request.at("alpha"), request.at("of"), random).back()) << "\n";
  }
}

// Corners to corners: the eight coefficients.
void print_perspective(const json& request) {
  const data::Corners from = request.at("from"), to = request.at("to");
  std::cout << json(data::perspective_matrix(from, to)) << "\n";
}

void print_folder(const json& request) {
  const data::ImageFolder set(request.at("path"));
  json samples;
  for (const data::ImageFolder::Entry& entry : set.entries()) samples.push_back({entry.path, entry.label});
  std::cout << json{{"classes", set.classes()}, {"samples", samples}} << "\n";
}

using Command = void (*)(const json& request);
const std::map<std::string, Command> kCommands = {
    {"crops", draw_crops}, {"erasings", draw_erasings},        {"policies", print_policies}, {"mix", mix},
    {"betas", draw_betas}, {"perspective", print_perspective}, {"folder", print_folder},     {"shares", draw_shares},
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const json request = json::parse(std::cin);
    if (argc == 1) return run_cases(request), 0;
    const auto command = kCommands.find(argv[1]);
    if (command == kCommands.end()) {
      throw std::invalid_argument(
          "usage: image_probe [crops|erasings|policies|mix|betas|shares|perspective|folder] < request.json");
    }
    command->second(request);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "image_probe: " << error.what() << "\n";
    return 2;
  }
}

// Lets the Python tests look at decoded and transformed pictures:
//   image_probe < request.json
// Request: {"output": file, "cases": [{"file": picture, "steps": [[name, arguments...], ...]}]}.
// Prints one line per case, {"shape": [height, width, channels]} or {"error": message}, and appends
// the pixels of the former to the output file.

#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/transforms/resize.h"

namespace {

using nlohmann::json;
using namespace lockstep;
using data::Image;

using Step = Image (*)(const Image& image, const json& arguments);

data::Interpolation interpolation(const std::string& name) {
  static const std::map<std::string, data::Interpolation> kNames = {{"nearest", data::Interpolation::nearest},
                                                                    {"bilinear", data::Interpolation::bilinear},
                                                                    {"bicubic", data::Interpolation::bicubic}};
  return kNames.at(name);
}

// arguments[0] is the name of the step.
const std::map<std::string, Step> kSteps = {
    // height, width, interpolation
    {"resize",
     [](const Image& image, const json& a) {
       return resize(image.view(), {a.at(1), a.at(2)}, interpolation(a.at(3)));
     }},
    // height, width, interpolation, left, top, right, bottom
    {"resize_box",
     [](const Image& image, const json& a) {
       return resize(image.view(), {a.at(1), a.at(2)}, interpolation(a.at(3)), {a.at(4), a.at(5), a.at(6), a.at(7)});
     }},
    // edge, max_size or null, interpolation
    {"resize_edge",
     [](const Image& image, const json& a) {
       const std::optional<int> max_size = a.at(2).is_null() ? std::optional<int>() : a.at(2).get<int>();
       return resize(image.view(), data::resized_by_edge({image.height(), image.width()}, a.at(1), max_size),
                     interpolation(a.at(3)));
     }},
};

Image run(const json& request) {
  Image image = data::read_image(request.at("file"));
  for (const json& step : request.at("steps")) image = kSteps.at(step.at(0))(image, step);
  return image;
}

}  // namespace

int main() {
  try {
    const json request = json::parse(std::cin);
    std::ofstream output(request.at("output").get<std::string>(), std::ios::binary);
    output.exceptions(std::ios::badbit | std::ios::failbit);
    for (const json& one : request.at("cases")) {
      try {
        const Image image = run(one);
        output.write(reinterpret_cast<const char*>(image.row(0)), std::streamsize(image.bytes()));
        std::cout << json{{"shape", {image.height(), image.width(), image.channels()}}} << "\n";
      } catch (const UsageError& error) {
        std::cout << json{{"error", error.what()}} << "\n";
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "image_probe: " << error.what() << "\n";
    return 2;
  }
}

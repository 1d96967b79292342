#include "lockstep/metrics/event.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::metrics {
namespace {

[[noreturn]] void refuse(const Event& event, const std::string& name, const std::string& why) {
  throw Error(std::string("[metrics] event '") + to_string(event.kind) + "': field '" + name + "' " + why);
}

const Value& need(const Event& event, const std::string& name) {
  const Value* value = event.find(name);
  if (!value) refuse(event, name, "is missing");
  return *value;
}

}  // namespace

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::start:
      return "start";
    case Kind::train:
      return "train";
    case Kind::eval:
      return "eval";
    case Kind::answers:
      return "answers";
    case Kind::checkpoint:
      return "checkpoint";
    case Kind::fault:
      return "fault";
    case Kind::done:
      return "done";
  }
  throw Error("[metrics] unknown kind of event " + std::to_string(static_cast<int>(kind)));
}

const Value* Event::find(const std::string& name) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == name; });
  return found == fields.end() ? nullptr : &found->second;
}

double Event::number(const std::string& name) const {
  const Value& value = need(*this, name);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  refuse(*this, name, "is no number");
}

std::int64_t Event::integer(const std::string& name) const {
  if (const auto* integer = std::get_if<std::int64_t>(&need(*this, name))) return *integer;
  refuse(*this, name, "is no integer");
}

const std::string& Event::text(const std::string& name) const {
  if (const auto* text = std::get_if<std::string>(&need(*this, name))) return *text;
  refuse(*this, name, "is no text");
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string shortest(double value) {
  if (std::isnan(value)) return "nan";  // with or without a sign: "-nan" is nobody's word
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

}  // namespace lockstep::metrics

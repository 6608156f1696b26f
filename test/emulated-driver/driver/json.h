// The subset of JSON that the configuration and the report need.
#pragma once
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace emu {

struct Json {
  enum Kind { Null, Bool, Number, String, Array, Object } kind = Null;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<Json> items;
  std::map<std::string, Json> members;

  const Json *get(const char *name) const {
    const auto found = members.find(name);
    return found == members.end() ? nullptr : &found->second;
  }
};

class JsonReader {
public:
  explicit JsonReader(const char *text) : at(text) {}

  Json read() {
    Json value = readValue();
    skip();
    if (*at) throw std::runtime_error("the configuration goes on after its end");
    return value;
  }

private:
  const char *at;

  void skip() {
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
  }

  bool take(char wanted) {
    skip();
    if (*at != wanted) return false;
    at++;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) throw std::runtime_error(std::string("the configuration lacks a '") + wanted + "'");
  }

  std::string readString() {
    expect('"');
    std::string text;
    while (*at && *at != '"') {
      if (*at == '\\' && at[1]) at++;
      text += *at++;
    }
    expect('"');
    return text;
  }

  bool word(const char *text) {
    const std::string wanted = text;
    if (std::string(at).compare(0, wanted.size(), wanted) != 0) return false;
    at += wanted.size();
    return true;
  }

  Json readValue() {
    Json value;
    skip();
    if (*at == '{') {
      at++;
      value.kind = Json::Object;
      if (take('}')) return value;
      do {
        skip();
        const std::string name = readString();
        expect(':');
        value.members[name] = readValue();
      } while (take(','));
      expect('}');
    } else if (*at == '[') {
      at++;
      value.kind = Json::Array;
      if (take(']')) return value;
      do value.items.push_back(readValue());
      while (take(','));
      expect(']');
    } else if (*at == '"') {
      value.kind = Json::String;
      value.string = readString();
    } else if (word("true")) {
      value.kind = Json::Bool;
      value.boolean = true;
    } else if (word("false")) {
      value.kind = Json::Bool;
    } else if (word("null")) {
      value.kind = Json::Null;
    } else {
      char *end = nullptr;
      value.kind = Json::Number;
      value.number = std::strtod(at, &end);
      if (end == at) throw std::runtime_error("the configuration is not JSON");
      at = end;
    }
    return value;
  }
};

inline std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') (result += '\\') += c;
    else if (c == '\n') result += "\\n";
    else if ((unsigned char)c < 32) result += ' ';
    else result += c;
  }
  return result + "\"";
}

} // namespace emu

// Sizes and conditions in symbols, in postfix notation, with the meaning that Python gives to the operators.
#ifndef PTDEBUG_SIZES_H
#define PTDEBUG_SIZES_H
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

#include "ptdebug_files.h"

namespace {
using Strings = std::vector<std::string>;
using Sizes = std::vector<int64_t>;

Strings split(const std::string& text, char at) {
  Strings parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(at, begin)) != std::string::npos; begin = end + 1)
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

[[noreturn]] void too_large() { fail("a size that is computed exceeds 64 bits"); }

int64_t floor_divided(int64_t a, int64_t b) {
  if (b == 0) fail("a size divides by 0");
  if (b == -1 && a == INT64_MIN) too_large();
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t modulo(int64_t a, int64_t b) {  // with the sign of b
  if (b == 0) fail("a size divides by 0");
  const int64_t rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t value = 1;
  for (; exponent > 0; exponent--)
    if (__builtin_mul_overflow(value, base, &value)) too_large();
  return value;
}

int64_t evaluated(const Strings& tokens, const Sizes& symbols) {
  Sizes stack;
  for (const std::string& token : tokens) {
    if (token[0] == '$') {
      stack.push_back(symbols.at(std::stoul(token.substr(1))));
    } else if (std::isdigit(token[0]) || (token[0] == '-' && token.size() > 1)) {
      stack.push_back(std::stoll(token));
    } else if (token == "neg") {
      if (__builtin_sub_overflow(0, stack.back(), &stack.back())) too_large();
    } else if (token == "not") {
      stack.back() = !stack.back();
    } else {
      const int64_t b = stack.back();
      stack.pop_back();
      int64_t& a = stack.back();
      bool fits = true;
      if (token == "+") fits = !__builtin_add_overflow(a, b, &a);
      else if (token == "-") fits = !__builtin_sub_overflow(a, b, &a);
      else if (token == "*") fits = !__builtin_mul_overflow(a, b, &a);
      else if (token == "//") a = floor_divided(a, b);
      else if (token == "%") a = modulo(a, b);
      else if (token == "**") a = power(a, b);
      else if (token == "max") a = std::max(a, b);
      else if (token == "min") a = std::min(a, b);
      else if (token == "==") a = a == b;
      else if (token == "!=") a = a != b;
      else if (token == "<") a = a < b;
      else if (token == "<=") a = a <= b;
      else if (token == ">") a = a > b;
      else if (token == ">=") a = a >= b;
      else if (token == "and") a = a && b;
      else if (token == "or") a = a || b;
      else fail("the package has an operation that is unknown here: " + token);
      if (!fits) too_large();
    }
  }
  return stack.at(0);
}

std::vector<Strings> expressions(const std::string& text) {
  std::vector<Strings> found;
  if (!text.empty())
    for (const std::string& each : split(text, ',')) found.push_back(split(each, ' '));
  return found;
}
}  // namespace
#endif

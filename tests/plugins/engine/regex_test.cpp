// Regular expressions for whole texts; what is expected is RE2's answer (its syntax page, and RE2::FullMatch).
#include "schedule/regex.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belay::schedule {
namespace {

bool matches(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << (regex.ok() ? "" : regex.status().message());
  return regex.ok() && regex->matches(text);
}

struct Example {
  std::string_view pattern;
  std::vector<std::string_view> yes, no;
};

TEST(RegexTest, WholeTextsMatchAsByRe2) {
  const std::vector<Example> examples = {
      {"", {""}, {"a"}},
      {"abc", {"abc"}, {"ab", "abcd", "xabc", "ABC"}},
      {"a|b|", {"a", "b", ""}, {"ab", "c"}},
      {"a|bc*", {"a", "b", "bcc"}, {"ac"}},
      {"(a|b)*c", {"c", "abbac"}, {"ab"}},
      {"(a*)*", {"", "aaa"}, {"b"}},
      {"()*x", {"x"}, {""}},
      {"a{2}", {"aa"}, {"a", "aaa"}},
      {"a{2,}b", {"aab", "aaaab"}, {"ab"}},
      {"a{1,3}?", {"a", "aaa"}, {"", "aaaa"}},
      {"a{,3}", {"a{,3}"}, {"aaa"}},
      {"x{a", {"x{a"}, {"x"}},
      {".", {"a", "\xe6\x95\xb0", "\r"}, {"\n", "", "ab", "\xff"}},
      {"(?s).", {"\n"}, {""}},
      {"[a-c-e]+", {"a-e", "b"}, {"d"}},
      {"[]x]", {"]", "x"}, {"a"}},
      {"[^]x]", {"a", "\n"}, {"]", "x", "\xff"}},
      {"[\\d_-]+", {"1_-2"}, {"a"}},
      {"[[:alpha:]][[:^alpha:]]", {"a1"}, {"aa", "11"}},
      {"\\w+@\\w+\\.com", {"me_1@x.com"}, {"me@xacom", "@x.com"}},
      {"\\S\\s\\D", {"a b"}, {"a 1", "  b"}},
      {"\\bab\\b\\B", {}, {"ab"}},
      {"a\\b b", {"a b"}, {}},
      {"a\\Bb", {"ab"}, {}},
      {"^a$", {"a"}, {"a\n"}},
      {"a$\nb", {}, {"a\nb"}},
      {"(?m)a$\n^b", {"a\nb"}, {"ab"}},
      {"\\Aa\\z", {"a"}, {"a\n"}},
      {"(?i)stra\xc3\x9f" "e[x-z]", {"STRA\xc3\x9f" "EY", "stra\xc3\x9f" "ez"}, {"strasse"}},
      {"(?i)\xd0\xbf", {"\xd0\x9f", "\xd0\xbf"}, {"p"}},
      {"(?i:a)b", {"Ab", "ab"}, {"aB"}},
      {"(a(?i)b)c", {"aBc", "abc"}, {"Abc", "aBC"}},
      {"(?i-i)a", {"a"}, {"A"}},
      {"(?P<year>\\d{4})-(?<month>\\d\\d)", {"2024-05"}, {"2024-5"}},
      {"(?:ab)+", {"abab"}, {"aba"}},
      {"\\x41\\x{6570}\\101\\t\\.\\*", {"A\xe6\x95\xb0" "A\t.*"}, {"A"}},
      {"\\Qa.b*\\Ec", {"a.b*c"}, {"axbbc"}},
      {"\\Q", {""}, {"x"}},
      {"[\xe6\x95\xb0-\xe6\x95\xb8]", {"\xe6\x95\xb4"}, {"\xe6\x95\xaf", "\xe6"}},
  };
  for (const Example& example : examples) {
    for (const std::string_view text : example.yes) EXPECT_TRUE(matches(example.pattern, text)) << example.pattern << " on " << text;
    for (const std::string_view text : example.no) EXPECT_FALSE(matches(example.pattern, text)) << example.pattern << " on " << text;
  }
}

TEST(RegexTest, WhatIsNoPatternIsRefusedWithThePlace) {
  for (const char* pattern : {"(", "a)", "[a", "*a", "a**", "a{2}{3}", "a{3,2}", "a{1001}", "\\", "\\8", "\\1", "\\y", "(?=a)", "(?<=a)",
                              "(?", "(?P<>a)", "[b-a]", "[[:nope:]]", "\\x{110000}", "\xff", "((a{99}){99}){99}"}) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.status().code(), Code::kInvalidArgument) << pattern;
    EXPECT_THAT(regex.status().message(), testing::HasSubstr(pattern));
  }
  EXPECT_EQ(Regex::compile("\\pL").status().code(), Code::kUnimplemented);
  EXPECT_EQ(Regex::compile("[\\p{Greek}]").status().code(), Code::kUnimplemented);
}

TEST(RegexTest, PatternsThatMakeOthersExponentialTakeNoTime) {
  const std::string many(20'000, 'a');
  EXPECT_FALSE(matches("(a*)*(a|aa)*b", many));
  EXPECT_TRUE(matches("(a?){500}a{500}", std::string(500, 'a')));
  std::string nested = "()", deep;
  for (int i = 0; i < 100; ++i) nested = "(" + nested + "){1000}";
  EXPECT_TRUE(matches(nested, ""));
  for (int i = 0; i < 100'000; ++i) deep += '(';
  EXPECT_FALSE(Regex::compile(deep).ok());
}

}  // namespace
}  // namespace belay::schedule

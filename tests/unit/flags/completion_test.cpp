#include "lockstep/flags/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/flags/small_program.h"

namespace lockstep::flags {
namespace {

using detail::Follows;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string script(Shell shell) {
  SmallOptions options;
  return completion(small_program(options), shell);
}

TEST(Completion, WhatFollowsAFlag) {
  std::string place = "a";
  bool on_or_off = false;
  EXPECT_EQ(detail::follows(on(on_or_off)), Follows::nothing);
  EXPECT_EQ(detail::follows(one_of(place, {"a", "b"})), Follows::choices);
  EXPECT_EQ(detail::follows(text(place, "DIR")), Follows::folders);
  EXPECT_EQ(detail::follows(text(place, "FOLDER")), Follows::folders);
  EXPECT_EQ(detail::follows(text(place, "FILE")), Follows::files);
  EXPECT_EQ(detail::follows(text(place, "URL")), Follows::anything);
}

TEST(Completion, ChoicesAreTheNames) {
  std::string place = "a";
  std::vector<std::string> places;
  EXPECT_THAT(detail::choices_of(one_of(place, {"a", "b-c"})), ElementsAre("a", "b-c"));
  EXPECT_THAT(detail::choices_of(several_of(places, {"a", "b"})), ElementsAre("a", "b"));
  EXPECT_THAT(detail::choices_of(text(place, "DIR")), ElementsAre());
}

TEST(Completion, WhatOperandsMayBe) {
  SmallOptions options;
  const Command root = small_program(options);
  EXPECT_EQ(detail::follows(root), Follows::choices);
  EXPECT_EQ(detail::follows(*find_place(root, {"train"}).command), Follows::nothing);
  EXPECT_EQ(detail::follows(*find_place(root, {"run"}).command), Follows::files);
  EXPECT_EQ(detail::follows(*find_place(root, {"data", "fetch"}).command), Follows::choices);
}

TEST(Completion, Bash) {
  EXPECT_THAT(
      script(Shell::bash),
      AllOf(HasSubstr("    'toy train --opt') kind=choices choices='sgd adam' ;;\n"),
            HasSubstr("    'toy train -n'|'toy train --count') kind= ;;\n"),
            HasSubstr("    'toy train --output-dir') kind=folders ;;\n"), Not(HasSubstr("'toy train --fast')")),
            HasSubstr("        'toy data') command+=\" $word\" ;;\n"),
            HasSubstr("        'toy data fetch') command+=\" $word\" ;;\n"),
            HasSubstr("        'toy run '[!-]*) compopt -o default; return ;;\n"),
            HasSubstr("      'toy train') flags='--opt -n --count --output-dir --fast -h --help'; kind=choices; "
                      "choices=$flags ;;\n"),
            HasSubstr("      'toy data fetch') flags='-h --help'; kind=choices choices='mnist cifar' ;;\n"),
            HasSubstr("complete -F _toy toy\n"), Not(HasSubstr("NAME"))));
}

TEST(Completion, Zsh) {
  EXPECT_THAT(script(Shell::zsh),
              AllOf(::testing::StartsWith("#compdef toy\n"),
                    HasSubstr("_toy_train() {\n"
                              "  _arguments -S \\\n"
                              "    '(-h --help)'{-h,--help}'[Print this help and exit]' \\\n"
                              "    '--opt=[The update'\\''s rule]:NAME:(sgd adam)' \\\n"
                              "    '(-n --count)'{-n+,--count=}'[How many]:N: ' \\\n"
                              "    '--output-dir=[Where to]:DIR:_files -/' \\\n"
                              "    '--fast'\n"
                              "}\n"),
                    HasSubstr("'*--folder=[Where]:FOLDER:_files -/'"), HasSubstr("'(-):program:_files'"),
                    HasSubstr("        'train:train: a model'\n"), HasSubstr("        data) _toy_data ;;\n"),
                    HasSubstr("        fetch) _toy_data_fetch ;;\n"), HasSubstr("'*:argument:(mnist cifar)'"),
                    HasSubstr("compdef _toy toy\n"), Not(HasSubstr("NAME "))));
}

TEST(Completion, Fish) {
  EXPECT_THAT(script(Shell::fish),
              AllOf(HasSubstr("complete -c toy -n '__toy_at' -a 'train' -d 'train: a model'\n"),
                    HasSubstr("complete -c toy -n '__toy_in train' -l opt -x -a 'sgd adam' -d 'The update\\'s rule'\n"),
                    HasSubstr("complete -c toy -n '__toy_in train' -s n -l count -x -d 'How many'\n"),
                    HasSubstr("complete -c toy -n '__toy_in train' -l fast\n"),
                    HasSubstr("complete -c toy -n '__toy_at data' -a 'fetch' -d 'download one'\n"),
                    HasSubstr("complete -c toy -n '__toy_in data fetch' -a 'mnist cifar'\n"),
                    HasSubstr("complete -c toy -n '__toy_in run' -F\n"), Not(HasSubstr("NAME"))));
}

}  // namespace
}  // namespace lockstep::flags

// plan/program.hpp: from chosen claims to a program: kernels prepared, values placed, arguments bound.
#pragma once

#include "plan/stage.hpp"

#include <functional>

namespace belay::plan {

// Fills kernels, program, arena, bindings, made, views and infos of `stage`. `before`: values that exist when
// the stage begins. Nodes for which `is_view` holds and that stand alone in their claim are not run: their
// output is their input.
Status make_program(const Target& target, ConstantPool& pool, const Image& image, const Choice& choice,
                    const std::set<ir::ValueId>& before, const std::set<ir::ValueId>& needed,
                    const std::function<bool(const ir::Node&)>& is_view, Stage& stage);

}  // namespace belay::plan

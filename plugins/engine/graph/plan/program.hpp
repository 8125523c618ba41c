// plan/program.hpp: from chosen claims to a program: kernels prepared, values placed, arguments bound.
#pragma once

#include "plan/stage.hpp"

namespace belay::plan {

// Fills program, arena, bindings, made, views and infos of `stage` from its outline's units, and the rest of
// the outline. `like`: an outline of the same units for other shapes, or null; where its places do for this
// one, too, they are kept, else places are made with room for shapes to come.
Status make_program(const Target& target, ConstantPool& pool, const Outline* like, Stage& stage);

}  // namespace belay::plan

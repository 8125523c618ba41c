// belay/graph/verify.hpp: checks a frozen graph of unknown origin. In library belay::graph.
#pragma once

#include <belay/abi/graph.h>
#include <belay/status.hpp>

namespace belay::graph {

// OK: every index, offset, list and string of the image is in bounds; nodes of each graph are contiguous and sorted; each
// value has at most one producer and is used only where it is visible; types are well-formed; constants' bytes are those
// that dtype and dims need and lie inside their source; graphs nest at most BELAY_GRAPH_MAX_DEPTH deep and without
// cycles; each subgraph belongs to one node of its parent; captures are complete and in ascending order; ranks and the
// nesting of types are at most 32; inline constants begin at multiples of 8. Lists of one pool may not overlap so that
// they add up to more than the pool: time and memory are linear in the image. The image is aligned to 8 bytes. Errors:
// DATA_LOSS (names section, index and value found).
Status verify(belay_span image);

// The image as text, for people and for tests: one line a node, types and attributes written out, large constants
// shortened. The image was verified.
void print(belay_span image, belay_sink text);

}  // namespace belay::graph

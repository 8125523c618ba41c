#include "product.hpp"

namespace belay::cpu {

Blocks plan_blocks(int64_t rows, int64_t lanes, int64_t columns, int64_t element_bytes, int64_t m, int64_t n,
                   int64_t k, int64_t products, uint32_t threads, const ProductForm& form) {
  Blocks best;
  // A panel of B (kc x columns) and one of A fill three quarters of a first-level cache of 32 KiB.
  const int64_t most_k = std::max<int64_t>(16, 24 * 1024 / (element_bytes * (columns + rows)));
  const int64_t k_blocks = std::max<int64_t>(1, ceil_div(k, most_k));
  best.kc = std::max<int64_t>(1, ceil_div(k, k_blocks));

  // Largest blocks: what is packed or stored block by block stays within the second-level cache.
  const int64_t most_m = form.a_packed && !form.c_scratch ? m : std::min<int64_t>(m, 128);
  const int64_t most_n =
      form.b_near                        ? std::min(n, columns)
      : form.b_packed && !form.c_scratch ? n
      : form.b_packed                    ? std::min(n, std::max(columns * 10, 128 * 1024 / std::max<int64_t>(1, most_m)))
      : form.b_direct                    ? std::min(n, columns * 16)
                                         : std::min(n, columns * 5);
  const int64_t first_m = std::max<int64_t>(1, ceil_div(m, std::max<int64_t>(1, most_m)));
  const int64_t first_n = std::max<int64_t>(1, ceil_div(n, std::max<int64_t>(1, most_n)));

  // Cost in multiply-adds of a vector: tiles at their padded size, packing, a constant for each task.
  const double total = double(products) * double(m) * double(n) * double(std::max<int64_t>(k, 1));
  const double vector_ns = 0.3;
  best.lanes = worthwhile_threads(threads, total / double(lanes) * vector_ns);
  double best_cost = 0;
  const int64_t more = best.lanes > 1 ? int64_t(best.lanes) * 2 : 0;
  for (int64_t mb = first_m; mb <= first_m + more; ++mb)
    for (int64_t nb = first_n; nb <= first_n + more; ++nb) {
      const int64_t mc = round_up(ceil_div(std::max<int64_t>(m, 1), mb), rows);
      const int64_t nc =
          round_up(ceil_div(std::max<int64_t>(n, 1), nb), form.b_packed || n > columns ? columns : lanes);
      const int64_t m_blocks = ceil_div(std::max<int64_t>(m, 1), mc),
                    n_blocks = ceil_div(std::max<int64_t>(n, 1), nc);
      const double depth = double(std::max<int64_t>(k, 1));
      double cost = double(mc) * double(nc) / double(lanes) * depth + 500;
      if (!form.a_packed) cost += double(mc) * depth * 0.5;
      if (!form.b_packed && !form.b_direct) cost += double(nc) * depth / double(lanes) * 2 * form.b_pack_cost;
      cost *= double(ceil_div(products * m_blocks * n_blocks, best.lanes));
      if (best.mc == 0 || cost < best_cost * 0.999) {
        best_cost = cost;
        best.mc = mc;
        best.nc = nc;
        best.m_blocks = m_blocks;
        best.n_blocks = n_blocks;
      }
    }

  // An odd number of cache lines between rows spreads them over all sets of the cache.
  best.b_step = round_up(best.nc, lanes);
  const int64_t line = std::max<int64_t>(1, 64 / element_bytes);
  if (best.b_step >= line && best.b_step / line % 2 == 0) best.b_step = round_up(best.b_step + 1, line);
  if (!form.a_packed) best.a_scratch = round_up(best.mc * best.kc, line);
  if (!form.b_packed) best.b_scratch = round_up((form.b_direct ? columns : best.b_step) * best.kc, line);
  if (form.c_scratch) best.c_scratch = round_up(best.mc * best.nc, line);
  return best;
}

}  // namespace belay::cpu

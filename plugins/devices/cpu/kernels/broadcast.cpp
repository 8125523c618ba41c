#include "broadcast.hpp"

#include "trouble.hpp"

namespace belay::cpu {
namespace {

struct BroadcastKernel {
  BinaryLoop loop;
  int64_t total;  // elements of the result
  int64_t grain;  // of them that are worth a thread
  bool direct;    // runs of the walk go to the loop as they are
  bool one_run;
  bool narrow_out;                    // the output is a 16-bit float
  uint8_t a_bytes, b_bytes, y_bytes;  // of an element
  int64_t sa, sb;                     // strides along a run, in elements

  Walk walk;
  BlockReader a, b;
  Dims dims;
  std::string name;
  std::string_view no_answer;  // what it means when the loop has none
  uint32_t out_dtype;

  belay_status operator()(const Run& run) const {
    Trouble trouble;
    const char* pa = run.in<char>(0);
    const char* pb = run.in<char>(1);
    char* py = run.out<char>(0);
    run.parallel(total, grain, [&](int64_t begin, int64_t end) {
      if (direct)
        in_runs(pa, pb, py, begin, end, trouble);
      else
        in_blocks(pa, pb, py, begin, end, trouble);
    });
    if (trouble)
      return run.fail(Code::kInvalidArgument, name + ": element " + std::to_string(trouble.first()) +
                                                  " of the result, of shape " + text_of(dims) + ", " +
                                                  std::string(no_answer) + ".");
    return BELAY_OK;
  }

  void in_runs(const char* pa, const char* pb, char* py, int64_t begin, int64_t end, Trouble& trouble) const {
    if (one_run) {
      const int64_t n = end - begin;
      const int64_t done =
          loop(pa + begin * sa * a_bytes, sa, pb + begin * sb * b_bytes, sb, py + begin * y_bytes, n);
      if (done != n) trouble.note(begin + done);
      return;
    }
    const int64_t inner = walk.dims.back();
    int64_t skip = begin % inner, at = begin;
    for_runs<2>(walk, 1, begin / inner, (end - 1) / inner + 1, [&](int64_t, const int64_t* offset) {
      const int64_t n = std::min(inner - skip, end - at);
      const int64_t done = loop(pa + (offset[0] + skip * sa) * a_bytes, sa,
                                pb + (offset[1] + skip * sb) * b_bytes, sb, py + at * y_bytes, n);
      if (done != n) trouble.note(at + done);
      at += n;
      skip = 0;
    });
  }

  void in_blocks(const char* pa, const char* pb, char* py, int64_t begin, int64_t end,
                 Trouble& trouble) const {
    for_blocks(begin, end, [&](int64_t at, int64_t n) {
      BlockBuffer left, right;
      alignas(64) float wide[kBlock];
      const void* x = a.read(pa, at, n, left);
      const void* y = b.read(pb, at, n, right);
      const int64_t done = loop(x, 1, y, 1, narrow_out ? static_cast<void*>(wide) : py + at * y_bytes, n);
      if (narrow_out) narrow(out_dtype, wide, py + at * y_bytes, n);
      if (done != n) trouble.note(at + done);
    });
  }
};

}  // namespace

Status prepare_broadcast(OpContext& op, const BinaryForm& form) {
  const Dims* shapes[] = {&op.dims(0), &op.dims(1)};
  const auto out = broadcast(shapes);
  if (!out)
    return op.bad("shapes " + text_of(op.dims(0)) + " and " + text_of(op.dims(1)) + " do not broadcast");
  BELAY_TRY(op.output(0, form.out_dtype, *out));
  const Walk walk(*out, {broadcast_strides(op.dims(0), *out), broadcast_strides(op.dims(1), *out)});
  const size_t rank = walk.rank();
  const bool wide = !is_16bit_float(op.dtype(0)) && !is_16bit_float(op.dtype(1));
  BroadcastKernel kernel{.loop = form.loop,
                         .total = product(*out),
                         .grain = grain_of(form.ns),
                         // Runs shorter than this cost more to start than to gather into blocks.
                         .direct = wide && (rank <= 1 || walk.dims.back() >= 16),
                         .one_run = rank <= 1,
                         .narrow_out = is_16bit_float(form.out_dtype),
                         .a_bytes = uint8_t(element_bytes(op.dtype(0))),
                         .b_bytes = uint8_t(element_bytes(op.dtype(1))),
                         .y_bytes = uint8_t(element_bytes(form.out_dtype)),
                         .sa = rank ? walk.strides[0].back() : 0,
                         .sb = rank ? walk.strides[1].back() : 0,
                         .walk = walk,
                         .a = BlockReader(op.dtype(0), op.dims(0), *out),
                         .b = BlockReader(op.dtype(1), op.dims(1), *out),
                         .dims = *out,
                         .name = std::string(op.op()),
                         .no_answer = form.trouble,
                         .out_dtype = form.out_dtype};
  op.kernel(std::move(kernel), op.dtype(0) == BELAY_DT_FLOAT64 ? "loops" : simd().name);
  return {};
}

}  // namespace belay::cpu

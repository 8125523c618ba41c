/* belay/abi/graph.h: the frozen graph: a model as one contiguous little-endian image without pointers, so that it can
 * cross a process, be cached and be recorded. Read it only after the verifier (belay/graph/verify.h) accepted it: it
 * bounds every index, offset and list. Nothing in the image is aligned to more than 8 bytes.
 *
 * Operators are those of the domains "ai.onnx" (written as ""), "com.microsoft" and "belay". Control flow is If, Loop
 * and Scan of ONNX with subgraphs. Model formats lower what they read to these. */
#ifndef BELAY_ABI_GRAPH_H
#define BELAY_ABI_GRAPH_H

#include <belay/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_GRAPH_MAGIC 0x31475942u /* "BYG1" */
#define BELAY_GRAPH_VERSION 1u
#define BELAY_NONE 0xffffffffu /* no such index: an absent optional input, an unknown rank, no constant ... */
#define BELAY_GRAPH_MAX_DEPTH 32u

/* Element types. The numbers up to 26 are those of ONNX. */
#define BELAY_DT_UNDEFINED 0u
#define BELAY_DT_FLOAT32 1u
#define BELAY_DT_UINT8 2u
#define BELAY_DT_INT8 3u
#define BELAY_DT_UINT16 4u
#define BELAY_DT_INT16 5u
#define BELAY_DT_INT32 6u
#define BELAY_DT_INT64 7u
#define BELAY_DT_STRING 8u
#define BELAY_DT_BOOL 9u /* one byte, 0 or 1 */
#define BELAY_DT_FLOAT16 10u
#define BELAY_DT_FLOAT64 11u
#define BELAY_DT_UINT32 12u
#define BELAY_DT_UINT64 13u
#define BELAY_DT_COMPLEX64 14u
#define BELAY_DT_COMPLEX128 15u
#define BELAY_DT_BFLOAT16 16u
#define BELAY_DT_FLOAT8E4M3FN 17u
#define BELAY_DT_FLOAT8E4M3FNUZ 18u
#define BELAY_DT_FLOAT8E5M2 19u
#define BELAY_DT_FLOAT8E5M2FNUZ 20u
#define BELAY_DT_UINT4 21u /* two in a byte, the first in the low half; odd tails are padded */
#define BELAY_DT_INT4 22u
#define BELAY_DT_FLOAT4E2M1 23u
#define BELAY_DT_FLOAT8E8M0 24u
#define BELAY_DT_UINT2 25u /* four in a byte, from the low end */
#define BELAY_DT_INT2 26u
/* Of the OM list, beyond ONNX. */
#define BELAY_DT_COMPLEX32 64u
#define BELAY_DT_HIFLOAT8 65u
#define BELAY_DT_UINT1 66u /* eight in a byte, from the low end */
#define BELAY_DT_FLOAT6E3M2 67u
#define BELAY_DT_FLOAT6E2M3 68u
#define BELAY_DT_FLOAT4E1M2 69u

#define BELAY_TYPE_TENSOR 1u
#define BELAY_TYPE_SEQUENCE 2u
#define BELAY_TYPE_OPTIONAL 3u
#define BELAY_TYPE_MAP 4u

typedef struct belay_section { /* `count` records of the section's type from `offset` of the image */
  uint64_t offset;             /* multiple of 8 */
  uint64_t count;
} belay_section;

typedef struct belay_list { /* a run of records of the section that the field names */
  uint32_t first;
  uint32_t count;
} belay_list;

typedef struct belay_graph_image { /* offset 0 of the image */
  uint32_t magic;
  uint32_t version;
  uint64_t total_bytes;
  belay_section bytes;      /* uint8_t: text of the strings */
  belay_section strings;    /* belay_graph_string */
  belay_section indices;    /* uint32_t: pool of lists of indices */
  belay_section ints;       /* int64_t: pool of attribute values */
  belay_section floats;     /* float: pool of attribute values */
  belay_section dims;       /* belay_graph_dim */
  belay_section shapes;     /* belay_graph_shape */
  belay_section types;      /* belay_graph_type */
  belay_section quants;     /* belay_graph_quant */
  belay_section constants;  /* belay_graph_constant */
  belay_section sources;    /* belay_graph_source; the first is the model file */
  belay_section values;     /* belay_graph_value */
  belay_section attributes; /* belay_graph_attribute */
  belay_section nodes;      /* belay_graph_node; those of one graph are contiguous, in topological order */
  belay_section graphs;     /* belay_graph_graph; the first is the main graph */
  belay_section metadata;   /* belay_graph_pair */
  belay_section data;       /* uint8_t: inline constants */
} belay_graph_image;

typedef struct belay_graph_string { /* UTF-8 */
  uint64_t offset;                  /* into `bytes` */
  uint64_t len;
} belay_graph_string;

typedef struct belay_graph_pair {
  uint32_t key, value; /* strings */
} belay_graph_pair;

typedef struct belay_graph_dim {
  int64_t value;     /* >= 0; -1: not known */
  uint32_t symbol;   /* string: dims of one symbol are equal; BELAY_NONE: none */
  uint32_t reserved; /* 0 */
} belay_graph_dim;

typedef struct belay_graph_shape {
  belay_list dims; /* of `dims` */
} belay_graph_shape;

typedef struct belay_graph_type {
  uint32_t kind;    /* BELAY_TYPE_... */
  uint32_t dtype;   /* of a tensor; key type of a map; else BELAY_DT_UNDEFINED */
  uint32_t shape;   /* of a tensor; BELAY_NONE: unknown rank */
  uint32_t element; /* type of a sequence's or optional's element, or of a map's value; BELAY_NONE for a tensor */
} belay_graph_type;

#define BELAY_QUANT_TENSOR 1u
#define BELAY_QUANT_AXIS 2u
#define BELAY_QUANT_BLOCK 3u
typedef struct belay_graph_quant {
  uint32_t kind;       /* BELAY_QUANT_... */
  uint32_t scale;      /* value */
  uint32_t zero_point; /* value or BELAY_NONE */
  uint32_t reserved;   /* 0 */
  int64_t axis;
  int64_t block;
} belay_graph_quant;

/* Bytes of a constant tensor: dense, row-major. A string tensor is (count + 1) uint64_t offsets followed by the text:
 * element i is text[offset[i], offset[i + 1]). */
typedef struct belay_graph_constant {
  uint32_t name;   /* string */
  uint32_t dtype;  /* BELAY_DT_... */
  belay_list dims; /* of `dims`, all known, no symbols */
  uint32_t source; /* BELAY_NONE: inline in `data` */
  uint32_t reserved; /* 0 */
  uint64_t offset; /* into the source, or into `data`: there a multiple of 8 */
  uint64_t bytes;
} belay_graph_constant;

typedef struct belay_graph_source { /* a file that constants lie in */
  uint32_t name;                    /* string: as the model names it; empty for the model file */
  uint32_t reserved;                /* 0 */
  uint64_t bytes;                   /* size when it was read */
} belay_graph_source;

#define BELAY_VALUE_IS_INPUT 1u /* graph input */
typedef struct belay_graph_value {
  uint32_t name;     /* string; may be empty for what no name leads to */
  uint32_t type;     /* BELAY_NONE: not known yet */
  uint32_t constant; /* initial value; a graph input that has one may be left out by the caller. BELAY_NONE: none */
  uint32_t quant;    /* BELAY_NONE: none */
  uint32_t graph;    /* the graph it belongs to */
  uint32_t producer; /* node; BELAY_NONE: input or constant */
  uint32_t output;   /* which output of the producer; else 0 */
  uint32_t flags;    /* BELAY_VALUE_IS_INPUT */
} belay_graph_value;

#define BELAY_ATTR_FLOAT 1u   /* floats, count 1 */
#define BELAY_ATTR_INT 2u     /* ints, count 1 */
#define BELAY_ATTR_STRING 3u  /* indices of strings, count 1; bytes that need not be UTF-8 */
#define BELAY_ATTR_TENSOR 4u  /* indices of constants, count 1 */
#define BELAY_ATTR_GRAPH 5u   /* indices of graphs, count 1 */
#define BELAY_ATTR_FLOATS 6u
#define BELAY_ATTR_INTS 7u
#define BELAY_ATTR_STRINGS 8u
#define BELAY_ATTR_TENSORS 9u
#define BELAY_ATTR_GRAPHS 10u
#define BELAY_ATTR_TYPE 13u /* indices of types, count 1 */
typedef struct belay_graph_attribute {
  uint32_t name;     /* string */
  uint32_t kind;     /* BELAY_ATTR_... */
  belay_list values; /* of `floats`, `ints` or `indices`, as the kind says */
} belay_graph_attribute;

typedef struct belay_graph_node {
  uint32_t domain;           /* string: "", "com.microsoft", "belay" */
  uint32_t op;               /* string */
  uint32_t since_version;    /* the definition's version: newest one at or below the imported version */
  uint32_t name;             /* string: the source node's name; may be empty or repeated */
  uint32_t graph;
  uint32_t reserved;         /* 0 */
  belay_list inputs;         /* indices of values; BELAY_NONE: absent */
  belay_list outputs;        /* indices of values; BELAY_NONE: not wanted */
  belay_list control_inputs; /* indices of nodes of this graph */
  belay_list attributes;     /* of `attributes` */
} belay_graph_node;

typedef struct belay_graph_graph {
  uint32_t name;       /* string */
  uint32_t parent;     /* graph; BELAY_NONE: the main graph */
  belay_list inputs;   /* indices of values */
  belay_list outputs;  /* indices of values; an output may be a value of an outer graph */
  belay_list captures; /* indices of values of outer graphs that this one or its subgraphs use, ascending */
  belay_list nodes;    /* of `nodes` */
} belay_graph_graph;

BELAY_STATIC_ASSERT(sizeof(belay_graph_image) == 16 + 17 * 16, "no padding");
BELAY_STATIC_ASSERT(sizeof(belay_graph_value) == 32, "no padding");
BELAY_STATIC_ASSERT(sizeof(belay_graph_node) == 56, "no padding");

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_GRAPH_H */

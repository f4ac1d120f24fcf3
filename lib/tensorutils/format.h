/* SPDX-License-Identifier: Apache-2.0 */
/* format.h: foreign tensor files, read and written through one face.
 *
 * A format is a row of tu_formats. A *source* is an open file of any format: a list of
 * tensors with random access to their C-order bytes. A *sink* is a file being written
 * whose tensors are all declared before the first byte, and whose bytes may then come in
 * any order, from any thread. A *feed* gives the records of any file one by one. So every
 * reader (tns-import, tns-ls, tns-cat, tns-diff, shard-ckpt, quantize) and every writer
 * (tns-export, shard-ckpt) works on all of them, the tensor stream included.
 *
 * May change before 1.0, except for struct tu_tensor and the stream. */
#ifndef TENSORUTILS_FORMAT_H
#define TENSORUTILS_FORMAT_H

#include "core.h"
#include "stream.h"

TU_BEGIN

struct tu_source;
struct tu_sink;
struct tu_pickle;
struct tu_pnode;
struct tui_names;

/* Opening options; {0} is the default. */
struct tu_open {
    bool keep_header;   /* keep what an exact re-export needs (META of the format's topic) */
    bool no_crc;        /* do not verify the checksums that the format stores */
    bool strict;        /* torch: refuse globals outside the known list */
    bool partial;       /* npz: leave out arrays that cannot be read, with a warning each */
    uint32_t void_dtype;/* npy: meaning of V1, V2; TU_DTYPE_NONE refuses */
    const char *folder; /* where to spool a pipe; NULL: /tmp */
    struct tu_in *in;   /* to tu_source_open: the file, if it is open already (taken over); to a
                         * format's `open`: the file, seekable, borrowed; NULL for folders */
};

/* A META record that belongs to a source or sink: topic and canonical JSON object. */
struct tu_meta {
    const char *topic;
    const char *json;
    size_t n;
};

/* How a format's source works; private state begins with a struct tu_source. */
struct tu_source_ops {
    /* Bytes off … off+n-1 of the C-order data of tensor i, unless a position is given by
     * `place` of the source. Any thread. */
    int (*read)(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                struct tu_err *err);
    /* Verify stored checksums of tensor i; NULL: the format has none. */
    int (*verify)(struct tu_source *s, size_t i, struct tu_pool *pool, struct tu_err *err);
    /* Does the file store a checksum of tensor i? NULL: as `crc` of the source says. */
    bool (*summed)(const struct tu_source *s, size_t i);
    void (*close)(struct tu_source *s);
};

struct tu_source {
    const struct tu_format *format;
    const struct tu_source_ops *ops;
    char *path;
    struct tu_arena *arena;         /* owns everything below */
    size_t n;
    const struct tu_tensor *tensor; /* [n] in the file's order */
    size_t metas;
    const struct tu_meta *meta;     /* [metas] */
    /* Where tensor i's C-order bytes lie in one piece: the file and the offset; NULL if
     * nowhere (views, compressed members). Lets a mover read or map without a copy. */
    const struct tu_extent *extent; /* [n] or NULL */
    const uint64_t *crc;            /* [n] CRC-32 of tensor i's bytes if the file stores just
                                     * that, else TU_CRC_NONE; NULL: for no tensor */
    struct tu_pickle *pickle;       /* torch: the object, else NULL */
    uint64_t referenced, stored;    /* bytes of tensors, bytes of the file */
    size_t left_out;                /* tensors that `partial` left out */
    /* Kept by the front, not by the format: */
    struct tu_in *in;               /* the open file, alive until after ops->close */
    struct tui_names *names;        /* of tu_source_find */
    bool no_crc;                    /* asked for: nothing is verified */
};

#define TU_CRC_NONE UINT64_MAX

struct tu_extent {
    struct tu_in *in; /* NULL: not contiguous in a file */
    uint64_t off;
};

/* What a sink is told before the first byte. */
struct tu_save {
    size_t n;
    const struct tu_tensor *tensor; /* [n] in the order wanted */
    size_t metas;
    const struct tu_meta *meta;
    bool keep_header;               /* restore the original file from the META, byte for byte */
    bool npy_raw;                   /* npy: bf16 and fp8 as unsigned integers */
    bool force;                     /* folders: replace one that exists */
    uint64_t max_shard;             /* hf, gguf: bytes per file; hf 0: 5,000,000,000; gguf 0: one */
    const char *beside;             /* hf: a folder whose small files go along (tu_hf_travels),
                                     * unless META "files" has them */
    const struct tu_pnode *object;  /* torch: the pickled object whose leaves are the tensors by
                                     * number; NULL: a dict of names */
    const char *folder_name;        /* torch: name of the folder in the zip; NULL: "archive" */
};

struct tu_sink_ops {
    /* Bytes at `off` of tensor i's C-order data. Any thread, any order, each byte once. */
    int (*write)(struct tu_sink *s, size_t i, uint64_t off, const void *p, size_t n,
                 struct tu_err *err);
    /* All bytes are there: checksums, directories, fsync when durable, rename. */
    int (*finish)(struct tu_sink *s, bool durable, struct tu_err *err);
    void (*close)(struct tu_sink *s); /* free; removes what was not finished */
};

struct tu_sink {
    const struct tu_format *format;
    const struct tu_sink_ops *ops;
    char *path;
    size_t n;
    const size_t *order; /* [n] the tensors as their bytes follow each other in the file, which is
                          * how a sequential output must be written; NULL: as declared */
    /* Kept by the front, not by the format: */
    uint64_t *bytes, *written; /* [n] wanted, and so far (atomic) */
};

enum tu_format_flags {
    TU_FORMAT_READ = 1,
    TU_FORMAT_WRITE = 2,
    TU_FORMAT_DIR = 4,    /* reads or writes a folder of files */
    TU_FORMAT_UNIQUE = 8, /* names must be unique */
    TU_FORMAT_HEADER = 16, /* keep_header works */
    TU_FORMAT_NAMED = 32,  /* a tensor's own metadata plays no part in writing */
};

/* A row. */
struct tu_format {
    const char *name;   /* "safetensors" */
    const char *help;   /* one line */
    const char *suffix; /* space-separated, for --to by file name: ".safetensors" */
    unsigned flags;
    /* Does a file that begins with head[n] (n ≤ 4096, less only for shorter files) look
     * like this format? path is for formats that are folders. */
    bool (*sniff)(const char *path, const unsigned char *head, size_t n);
    /* Index the file how->in (a folder: path). Called by tu_source_open alone, which
     * fills the front's members afterwards. The op must leave nothing behind on failure. */
    int (*open)(struct tu_source **out, const char *path, const struct tu_open *how,
                const struct tu_job *job, struct tu_err *err);
    /* Lay the file out and prepare to write under a temporary name. `sequential` outputs
     * ("-") work only where the format can be written front to back; then bytes must come
     * in order. */
    int (*save)(struct tu_sink **out, const char *path, const struct tu_save *what,
                const struct tu_job *job, struct tu_err *err);
    /* The dtype is representable; NULL: every dtype is. */
    bool (*dtype_ok)(uint32_t dtype);
};

/* NULL-ended table, in sniffing order. */
TU_API extern const struct tu_format *const tu_formats[];
TU_API const struct tu_format *tu_format_find(const char *name);
/* By suffix of a file name; NULL if none fits. */
TU_API const struct tu_format *tu_format_of_path(const char *path);

/* Open any file: `format` NULL sniffs. "-" is spooled where the format needs seeking.
 * Errors: TU_EMAGIC naming what it looks like; those of the format. */
TU_API TU_MUST int tu_source_open(struct tu_source **out, const char *path,
                                  const struct tu_format *format, const struct tu_open *how,
                                  const struct tu_job *job, struct tu_err *err);
TU_API void tu_source_close(struct tu_source *s);
/* Checked range read of tensor i. */
TU_API TU_MUST int tu_source_read(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                                  struct tu_err *err);
TU_API TU_MUST int tu_source_verify(struct tu_source *s, size_t i, struct tu_pool *pool,
                                    struct tu_err *err);
/* Has tu_source_verify anything to compare tensor i with? */
TU_API bool tu_source_summed(const struct tu_source *s, size_t i);
/* Index of the first tensor with this name (sorted names, built on first use; not for
 * threads before the first call has returned); SIZE_MAX if none. */
TU_API size_t tu_source_find(struct tu_source *s, const char *name);
/* See a source whose tensors come in pieces (`shard`, `flat`) as one of whole tensors:
 * each stands where its first piece stood, replicas count once, pieces must tile. Takes
 * `in` over, on failure too; gives `in` itself back where nothing is in pieces. Errors:
 * TU_EINCOMPLETE, TU_ESHARD, TU_EUNSUP for sums that are pending. */
TU_API TU_MUST int tu_source_join(struct tu_source **out, struct tu_source *in, struct tu_err *err);

/* One tensor of a view. */
struct tu_view_item {
    struct tu_tensor tensor;
    const void *data;     /* its bytes; NULL: those of tensor `from` below … */
    size_t from;
    uint64_t off;         /* … from this byte on */
    uint64_t pair, row;   /* not 0: of each `pair` rows of `row` bytes the even ones stand
                           * first, as rotary halves do where the file has pairs */
};
/* See a source as other tensors: renamed, cut, in another order, with some that are made up
 * (texts and data are copied). META are `meta` alone. Takes `below` over, on failure too. */
TU_API TU_MUST int tu_source_view(struct tu_source **out, struct tu_source *below,
                                  const struct tu_view_item *item, size_t n,
                                  const struct tu_meta *meta, size_t metas, struct tu_err *err);

/* 0: nothing is there, or a folder that is empty or holds a checkpoint, by the names in
 * it. Errors: TU_EEXISTS naming one of the other files; TU_EIO. */
TU_API TU_MUST int tu_folder_replaceable(const char *path, struct tu_err *err);
TU_API TU_MUST int tu_sink_open(struct tu_sink **out, const char *path,
                                const struct tu_format *format, const struct tu_save *what,
                                const struct tu_job *job, struct tu_err *err);
TU_API TU_MUST int tu_sink_write(struct tu_sink *s, size_t i, uint64_t off, const void *p,
                                 size_t n, struct tu_err *err);
/* TU_EBUG if bytes of a tensor are missing where the sink counts them. Frees on success
 * and failure. */
TU_API TU_MUST int tu_sink_finish(struct tu_sink *s, bool durable, struct tu_err *err);
TU_API void tu_sink_abort(struct tu_sink *s); /* NULL allowed */
/* Copy tensor i of a source to tensor j of a sink, window by window; stored checksums are
 * compared on the way (TU_EPCRC). job's progress counts from *done bytes to `total`, and
 * *done moves on. */
TU_API TU_MUST int tu_source_copy(struct tu_source *s, size_t i, struct tu_sink *to, size_t j,
                                  uint64_t *done, uint64_t total, const struct tu_job *job,
                                  struct tu_err *err);

/* Whole files --------------------------------------------------------------------------- */

/* Write a source as one segment of a stream: META contents if asked, META, tensors, END.
 * Stored checksums are verified on the way, before END. */
TU_API TU_MUST int tu_source_write(struct tu_source *s, struct tu_writer *w, bool contents,
                                   const struct tu_job *job, struct tu_err *err);
/* Write a source as a file: tensors and META are the source's, the rest of `what` is
 * followed. */
TU_API TU_MUST int tu_source_save(struct tu_source *s, const char *path,
                                  const struct tu_format *format, const struct tu_save *what,
                                  bool durable, const struct tu_job *job, struct tu_err *err);
/* Does META contents open this stream? Looks without taking bytes. */
TU_API bool tu_stream_announced(struct tu_in *in);
/* Write such a stream, which passes by once, as a file that is laid out before the
 * tensors come; only for formats with TU_FORMAT_NAMED. Takes `in` over. Errors: TU_EMETA
 * where a record is not what the contents say, TU_EINCOMPLETE, TU_EUNSUP for pieces. */
TU_API TU_MUST int tu_stream_save(struct tu_in *in, const char *path,
                                  const struct tu_format *format, const struct tu_save *what,
                                  bool durable, const struct tu_job *job, struct tu_err *err);

/* Records of any file ------------------------------------------------------------------- */

/* The records of a file, whatever it is, in order and in bounded memory: those of a
 * stream, or of another format those of the stream that tns-import makes of it. "-" and
 * pipes are streams; other files are sniffed. For commands that work record by record
 * (tns-ls, tns-cat, quantize). */
struct tu_feed;

/* {0} is the default. */
struct tu_feed_how {
    /* The source of another format as somebody else sees it; takes it over. NULL: as it is. */
    int (*view)(void *ctx, struct tu_source **s, struct tu_err *err);
    void *ctx;
    struct tu_open open; /* for other formats, and streams that are joined; the payloads of
                          * streams are verified in any case */
    bool headers;        /* pass over payloads that are not read, without verifying them */
    bool join;           /* one segment, pieces made whole (tu_source_join) */
    size_t orders;       /* in each segment the tensors that match order[0] come first, then */
    struct tu_pattern *const *order; /* those of order[1], …, then the rest; may spool */
};

/* how may be NULL; its patterns are not needed afterwards. Errors: those of tu_reader_new,
 * tu_index_open, tu_source_open and tu_source_join. */
TU_API TU_MUST int tu_feed_open(struct tu_feed **out, const char *path,
                                const struct tu_feed_how *how, const struct tu_job *job,
                                struct tu_err *err);
TU_API void tu_feed_close(struct tu_feed *f); /* NULL allowed */
/* For messages and reports. */
TU_API const char *tu_feed_name(const struct tu_feed *f);
/* What there is to pass, for progress; 0: not known. */
TU_API uint64_t tu_feed_bytes(const struct tu_feed *f);
/* As tu_reader_next. The offset of a record of another format is that of its bytes in the
 * file, 0 where they are not in one piece. */
TU_API TU_MUST int tu_feed_next(struct tu_feed *f, const struct tu_record **rec,
                                struct tu_err *err);
/* The payload of the record at hand, as tu_reader_read: a tu_pull_fn, feed is the struct
 * tu_feed. A checksum is compared with the last byte, or where the format stores one of
 * something larger before the first. */
TU_API TU_MUST int tu_feed_read(void *feed, void *buf, size_t n, size_t *got,
                                struct tu_err *err);
/* The payload of the record at hand from its first byte again. TU_EUSAGE for a stream that
 * passes by, which tu_feed_source tells. */
TU_API TU_MUST int tu_feed_rewind(struct tu_feed *f, struct tu_err *err);
/* What is behind a file of another format, or pieces that were joined: borrowed, so that
 * all names are known beforehand. NULL for a stream. */
TU_API const struct tu_source *tu_feed_source(const struct tu_feed *f);
/* The record at hand (not END), its payload not yet read, as it is; as tu_writer_copy. */
TU_API TU_MUST int tu_feed_copy(struct tu_feed *f, struct tu_writer *w, struct tu_err *err);

/* Comparison ---------------------------------------------------------------------------- */

/* Pair the tensors of two sources by name, the k-th of a name with the k-th: to[a->n]
 * gets the partner in b, from[b->n] that in a, SIZE_MAX where there is none. */
TU_API TU_MUST int tu_source_match(const struct tu_source *a, const struct tu_source *b, size_t *to,
                                   size_t *from, struct tu_err *err);

/* What tu_source_compare finds. */
struct tu_difference {
    bool bytes_equal;
    bool valued;              /* values could be compared; else only blocks of bytes were */
    struct tu_compare values; /* of block formats: n and differ count blocks */
};

/* Compare tensor i of a with tensor j of b, which have as many elements: bytes first,
 * values where bytes or dtypes differ. tol NULL: only equal bytes pass, values are for
 * the report. Stored checksums are verified on the way. */
TU_API TU_MUST int tu_source_compare(struct tu_difference *out, struct tu_source *a, size_t i,
                                     struct tu_source *b, size_t j, const struct tu_tolerance *tol,
                                     const struct tu_job *job, struct tu_err *err);

/* zip: STORED archives with aligned data; the container of torch and npz ---------------- */

struct tu_zip;
struct tu_zip_entry {
    const char *name;
    uint64_t offset;  /* of the data in the file */
    uint64_t size;    /* uncompressed */
    uint64_t stored;  /* compressed */
    uint32_t crc;
    uint16_t method;  /* 0 stored, 8 deflate */
};
/* Read the central directory; local headers are compared with it (TU_EFORMAT on
 * disagreement). Looks at bytes base … base+size-1 of `in` (size 0: to the end),
 * borrowed. */
TU_API TU_MUST int tu_zip_open(struct tu_zip **out, struct tu_in *in, uint64_t base, uint64_t size,
                               struct tu_err *err);
TU_API void tu_zip_close(struct tu_zip *z);
TU_API size_t tu_zip_count(const struct tu_zip *z);
TU_API const struct tu_zip_entry *tu_zip_entry(const struct tu_zip *z, size_t i);
TU_API size_t tu_zip_find(const struct tu_zip *z, const char *name); /* SIZE_MAX: none */
/* Whole entry into memory (tu_free), inflated, at most max bytes; the CRC is checked if
 * `verify`. */
TU_API TU_MUST int tu_zip_load(struct tu_zip *z, size_t i, size_t max, bool verify, void **data,
                               size_t *n, struct tu_err *err);
/* Inflate entry i into a file for random access (never more than the declared size). */
TU_API TU_MUST int tu_zip_inflate(struct tu_zip *z, size_t i, int fd, struct tu_err *err);

/* Writing: all entries and sizes first, then data in any order. */
struct tu_zip_plan {
    const char *name;
    uint64_t size;
    uint64_t offset; /* filled by tu_zip_layout: where the data goes */
    uint32_t crc;    /* filled before tu_zip_finish */
};
/* flags as torch writes them: data descriptors, ZIP64 end record, 'FB' padding extra to
 * align. */
TU_API TU_MUST int tu_zip_layout(struct tu_zip_plan *e, size_t n, unsigned align, uint64_t *size,
                                 struct tu_err *err);
TU_API TU_MUST int tu_zip_finish(struct tu_out *out, const struct tu_zip_plan *e, size_t n,
                                 unsigned align, struct tu_err *err);

/* pickle: a symbolic machine that runs nothing ------------------------------------------ */

enum tu_pkind {
    TU_P_NONE, TU_P_BOOL, TU_P_INT, TU_P_BIGINT, TU_P_REAL, TU_P_TEXT, TU_P_BYTES,
    TU_P_TUPLE, TU_P_LIST, TU_P_DICT, TU_P_SET, TU_P_FROZENSET,
    TU_P_GLOBAL,  /* text = "module name" */
    TU_P_CALL,    /* REDUCE or NEWOBJ: an object; its parts are items, see below */
    TU_P_PERSID,  /* item[0] the persistent id */
    TU_P_TENSOR,  /* writing only: integer = number of the tensor */
};

/* Parts of a TU_P_CALL: n is as long as needed, and parts that the object lacks are NULL. */
enum tu_pcall {
    TU_P_CALLABLE,
    TU_P_ARGS,     /* TUPLE */
    TU_P_STATE,    /* what BUILD gave it: mostly a DICT of attributes (Namespace) */
    TU_P_ITEMS,    /* DICT of the pairs set on it (a subclass of dict) */
    TU_P_APPENDED, /* LIST of what was appended to it (a subclass of list) */
    TU_P_KEYWORDS, /* DICT of keyword arguments of NEWOBJ_EX */
};

/* A node. Graphs may share and contain cycles: walk with `mark`. Pure calls are already
 * done: OrderedDict(), set(), frozenset(), bytes() and _codecs.encode are DICT, SET,
 * FROZENSET and BYTES. */
struct tu_pnode {
    enum tu_pkind kind;
    bool newobj;              /* TU_P_CALL by NEWOBJ */
    uint32_t mark;            /* for walkers */
    int64_t integer;          /* INT, BOOL; TENSOR; CALL that a torch source took for a tensor:
                               * 1 + its number (see tu_pnode_number) */
    double real;
    const char *text;         /* TEXT (UTF-8), BYTES, BIGINT (decimal), GLOBAL; DICT: its class
                               * ("collections OrderedDict"), NULL for a plain dict */
    size_t n;                 /* bytes of text, or items (DICT: 2 per pair, key then value) */
    struct tu_pnode **item;
    uint64_t offset;          /* of the opcode that made it, for messages */
};

/* Limits; 0 takes the default in parentheses. */
struct tu_pickle_limits {
    uint64_t bytes;  /* (1 GiB) */
    uint64_t nodes;  /* (64 Mi) */
    uint64_t text;   /* one string (256 MiB) */
    uint64_t memo;   /* memo index (64 Mi) */
    uint64_t digits; /* bytes of one LONG (1 KiB) */
};

/* Interpret one pickle of data[n]; *used is where it ends (trailing bytes are the
 * caller's to judge). Errors: TU_EFORMAT with offset and opcode name, TU_ELIMIT,
 * TU_EUNSUP for refused opcodes. */
TU_API TU_MUST int tu_pickle_read(struct tu_pickle **out, const void *data, size_t n,
                                  const struct tu_pickle_limits *limits, size_t *used,
                                  struct tu_err *err);
TU_API void tu_pickle_free(struct tu_pickle *p);
TU_API struct tu_pnode *tu_pickle_root(const struct tu_pickle *p);
TU_API struct tu_arena *tu_pickle_arena(struct tu_pickle *p);
/* Every GLOBAL in order of appearance, for --globals; known says it is in the list of
 * honest ones. */
struct tu_pglobal {
    const char *name; /* "module name" */
    uint64_t offset;
    bool known;
};
TU_API size_t tu_pickle_globals(const struct tu_pickle *p, const struct tu_pglobal **list);
/* Value of a text key in a DICT, or an attribute of an object with a dict state
 * (Namespace); NULL if absent, or if node is NULL. */
TU_API struct tu_pnode *tu_pnode_get(const struct tu_pnode *node, const char *key);
/* Number of the tensor of a torch source that this node became, SIZE_MAX if none. */
TU_API size_t tu_pnode_number(const struct tu_pnode *node);

/* Builders for writing, in an arena. Each gives NULL when memory is out, and tu_pnode_add
 * and _set pass a NULL on as TU_ENOMEM, so that calls nest. */
TU_API TU_MUST struct tu_pnode *tu_pnode_new(struct tu_arena *a, enum tu_pkind kind, size_t n,
                                             struct tu_err *err);
TU_API TU_MUST struct tu_pnode *tu_pnode_text(struct tu_arena *a, const char *s,
                                              struct tu_err *err);
/* TEXT, BYTES, BIGINT or GLOBAL of n bytes. */
TU_API TU_MUST struct tu_pnode *tu_pnode_bytes(struct tu_arena *a, enum tu_pkind kind,
                                               const void *s, size_t n, struct tu_err *err);
TU_API TU_MUST struct tu_pnode *tu_pnode_int(struct tu_arena *a, int64_t v, struct tu_err *err);
TU_API TU_MUST struct tu_pnode *tu_pnode_bool(struct tu_arena *a, bool v, struct tu_err *err);
TU_API TU_MUST struct tu_pnode *tu_pnode_real(struct tu_arena *a, double v, struct tu_err *err);
TU_API TU_MUST struct tu_pnode *tu_pnode_global(struct tu_arena *a, const char *name,
                                                struct tu_err *err);
TU_API TU_MUST struct tu_pnode *tu_pnode_tensor(struct tu_arena *a, size_t i,
                                                struct tu_err *err);
/* An object of a class ("argparse Namespace") whose attributes are the DICT `state`. */
TU_API TU_MUST struct tu_pnode *tu_pnode_object(struct tu_arena *a, const char *name,
                                                struct tu_pnode *state, struct tu_err *err);
/* Add a pair to a DICT or an item to a LIST or SET. */
TU_API TU_MUST int tu_pnode_add(struct tu_arena *a, struct tu_pnode *to, struct tu_pnode *key,
                                struct tu_pnode *value, struct tu_err *err);
/* Add a pair with a text key to a DICT. */
TU_API TU_MUST int tu_pnode_set(struct tu_arena *a, struct tu_pnode *dict, const char *key,
                                struct tu_pnode *value, struct tu_err *err);
/* Protocol 2, as torch.save writes it; TENSOR leaves become _rebuild_tensor_v2/_v3 with
 * storages numbered in order of first use. */
TU_API TU_MUST int tu_pickle_write(struct tu_buf *out, const struct tu_pnode *root,
                                   const struct tu_tensor *tensor, size_t n, struct tu_err *err);

/* "torch bfloat16" as a GLOBAL; NULL where torch has no such dtype. */
TU_API const char *tu_torch_name(uint32_t dtype);

/* dcp: PyTorch's distributed checkpoint ------------------------------------------------- */

/* One file of it, for writing only, and so not in tu_formats: a torch archive for each
 * tensor of the save, then one for each item of the LIST `object`. Who writes the
 * checkpoint writes its `.metadata`, with the places below. */
TU_API extern const struct tu_format tu_format_distcp;
/* Where the archives of a save lie in its file: of n tensors and of the objects. */
struct tu_place {
    uint64_t offset, length;
};
TU_API TU_MUST int tu_distcp_places(const struct tu_save *what, struct tu_place *tensor,
                                    struct tu_place *object, struct tu_err *err);

/* hf: the sharded index ----------------------------------------------------------------- */

/* Does a small file of this name belong to a model: config.json, tokenizers, templates? */
TU_API bool tu_hf_travels(const char *name);
/* META "files" of a folder: the texts of its small files by name; those that are not text are
 * left out. "{}" where there are none. Appended. */
TU_API TU_MUST int tu_hf_files(struct tu_buf *out, const char *folder, struct tu_err *err);
/* The folder that holds the weights: that of the snapshot which refs/main names where
 * `folder` is one of the hub cache (models--ORG--NAME), `folder` otherwise; tu_free. Errors:
 * TU_EINCOMPLETE for a folder of the cache without refs/main, TU_EFORMAT where it names no
 * snapshot. */
TU_API TU_MUST int tu_hf_snapshot(char **out, const char *folder, struct tu_err *err);
/* Split sizes[n] into files of at most `max` bytes as huggingface_hub does; file[i] gets
 * the number of tensor i's file, the return value is the number of files. */
TU_API size_t tu_hf_shards(const uint64_t *bytes, size_t n, uint64_t max, uint32_t *file);
/* Text of model.safetensors.index.json, as json.dumps(indent=2, sort_keys=True) prints
 * it: tensor i is in file[of[i]]. */
TU_API TU_MUST int tu_hf_index(struct tu_buf *out, const struct tu_tensor *tensor, size_t n,
                               const uint32_t *of, const char *const *file, struct tu_err *err);


TU_END

#endif

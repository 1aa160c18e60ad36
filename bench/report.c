/* What people and programs read: the table in nccl-tests' columns, JSON, CSV. */
#include "bench/bench.h"

#include "base/c_locale.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *bench_memory_name(const struct bench_options *o)
{
    static const char *const names[] = {"library-allocated", "malloc", "registered malloc"};
    if (o->device)
        return strcmp(o->device, "sim") == 0 ? "simulated device" : "device";
    return names[o->memory];
}

/* The transports in use from rank 0, without repeats: "shm" or "shm and tcp". */
static void transport_names(tutti_comm *comm, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int r = 0; r < tutti_comm_size(comm); r++) {
        const char *name = tutti_comm_transport(comm, r);
        if (strcmp(name, "self") == 0 || strstr(text, name))
            continue;
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", used ? " and " : "", name);
    }
    if (!text[0])
        snprintf(text, bytes, "none (one rank)");
}

/* Ranks of the host of rank `rank` that use its device. */
static int sharers(tutti_comm *comm, const int *devices, int rank)
{
    int count = 0;
    const char *own = tutti_comm_rank_name(comm, rank);
    for (int r = 0; r < tutti_comm_size(comm); r++) {
        const char *name = tutti_comm_rank_name(comm, r);
        const size_t host = strcspn(own, ":");
        count += devices[r] == devices[rank] && strcspn(name, ":") == host &&
                 strncmp(name, own, host) == 0;
    }
    return count;
}

static void print_devices(const struct bench_options *o, tutti_comm *comm, const int *devices)
{
    printf("# Using devices\n");
    for (int r = 0; r < tutti_comm_size(comm); r++) {
        printf("#  Rank %2d on %s ", r, tutti_comm_rank_name(comm, r));
        if (!devices)
            printf("host memory\n");
        else
            printf("%s device %d, shared by %d rank%s\n", o->device, devices[r],
                   sharers(comm, devices, r), sharers(comm, devices, r) == 1 ? "" : "s");
    }
}

void bench_report_header(const struct bench_options *o, tutti_comm *comm, const int *devices)
{
    char transports[128], iterations[32] = "auto";
    int size = tutti_comm_size(comm);
    transport_names(comm, transports, sizeof transports);
    if (o->iterations)
        snprintf(iterations, sizeof iterations, "%d", o->iterations);
    printf("# Tutti %d.%d.%d  collective %s, %d ranks (%s) on %d host%s, transport %s, %s memory\n",
           TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH,
           bench_collective_label(o->collective, o->uneven), size,
           o->threads ? "threads" : "processes", tutti_comm_hosts(comm),
           tutti_comm_hosts(comm) == 1 ? "" : "s", transports, bench_memory_name(o));
    printf(
        "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %g(%s) warmup iters: %d iters: %s "
        "agg iters: %d validation: %d graph: %d\n#\n",
        o->threads ? size : 1, o->device ? 1 : 0, o->min_bytes, o->max_bytes,
        o->step_factor > 0 ? o->step_factor : (double)o->step_bytes,
        o->step_factor > 0 ? "factor" : "bytes", o->warmup, iterations, o->aggregate, o->check,
        o->graph);
    if (tutti_comm_reproducible(comm))
        printf("# Reproducible mode: every element is combined in the order of ranks\n");
    print_devices(o, comm, devices);
    if (o->explain) {
        bench_explain_header(comm);
        return;
    }
    printf("#\n# %57s %31s %21s\n", "out-of-place", "in-place", "out-of-place");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s  %8s  %8s  %s\n",
           "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time",
           "algbw", "busbw", "#wrong", "p50", "p99", "algorithm");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s  %8s  %8s\n", "(B)",
           "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "",
           "(us)", "(us)");
    fflush(stdout);
}

static void time_text(double us, char *text, size_t bytes)
{
    snprintf(text, bytes, us >= 10000 ? "%.0f" : us >= 100 ? "%.1f" : "%.2f", us);
}

static void print_timing(const struct bench_timing *t)
{
    char time[32], wrong[32] = "N/A";
    time_text(t->time_us, time, sizeof time);
    if (t->wrong >= 0)
        snprintf(wrong, sizeof wrong, "%lld", t->wrong);
    printf("  %7s  %6.2f  %6.2f  %6s", time, t->algbw, t->busbw, wrong);
}

void bench_report_row(const struct bench_row *row)
{
    char root[16], p50[32], p99[32];
    snprintf(root, sizeof root, "%d", row->root);
    time_text(row->out_of_place.p50_us, p50, sizeof p50);
    time_text(row->out_of_place.p99_us, p99, sizeof p99);
    printf("%12zu  %12zu  %8s  %6s  %6s", row->bytes, row->count, bench_type_name(row->type),
           row->op < 0 ? "none" : bench_op_name(row->op), root);
    print_timing(&row->out_of_place);
    if (row->has_in_place)
        print_timing(&row->in_place);
    else
        printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    printf("  %8s  %8s  %s\n", p50, p99, row->choice.algorithm);
    fflush(stdout);
}

void bench_progress(const char *text)
{
    static bool shown;
    if (!isatty(STDERR_FILENO))
        return;
    if (text || shown)
        fprintf(stderr, text ? "\r\033[K%s ..." : "\r\033[K", text);
    shown = text != NULL;
    fflush(stderr);
}

/* ---- files ---- */

static void json_timing(FILE *file, const char *name, const struct bench_timing *t)
{
    fprintf(
        file,
        "\"%s\": {\"time_us\": %.4f, \"algbw_gbs\": %.4f, \"busbw_gbs\": %.4f, \"p50_us\": %.4f, "
        "\"p99_us\": %.4f, \"wrong\": ",
        name, t->time_us, t->algbw, t->busbw, t->p50_us, t->p99_us);
    if (t->wrong < 0)
        fprintf(file, "null}");
    else
        fprintf(file, "%lld}", t->wrong);
}

static int finish_file(FILE *file, const char *path)
{
    bool bad = ferror(file) != 0;
    bad |= fclose(file) != 0;
    if (!bad)
        return 0;
    fprintf(stderr, "allreduce_bench: cannot write %s: ", path);
    perror(NULL);
    return 1;
}

static FILE *open_file(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "allreduce_bench: cannot open %s: ", path);
        perror(NULL);
    }
    return file;
}

static int write_json(const struct bench_options *o, tutti_comm *comm,
                      const struct bench_result *result, bool complete)
{
    char transports[128];
    FILE *file = open_file(o->json);
    if (!file)
        return 1;
    transport_names(comm, transports, sizeof transports);
    fprintf(file,
            "{\n  \"version\": \"%d.%d.%d\",\n  \"collective\": \"%s\",\n  \"ranks\": %d,\n"
            "  \"hosts\": %d,\n  \"rank_kind\": \"%s\",\n  \"transport\": \"%s\",\n"
            "  \"memory\": \"%s\",\n  \"complete\": %s,\n  \"rows\": [",
            TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH,
            bench_collective_label(o->collective, o->uneven), tutti_comm_size(comm),
            tutti_comm_hosts(comm), o->threads ? "threads" : "processes", transports,
            bench_memory_name(o), complete ? "true" : "false");
    for (size_t i = 0; i < result->count; i++) {
        const struct bench_row *row = &result->rows[i];
        fprintf(file,
                "%s\n    {\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", "
                "\"root\": %d, \"algorithm\": \"%s\", \"lanes\": %d, \"slices\": %d, "
                "\"predicted_us\": %.4f,\n     ",
                i ? "," : "", row->bytes, row->count, bench_type_name(row->type),
                row->op < 0 ? "none" : bench_op_name(row->op), row->root, row->choice.algorithm,
                row->choice.lanes, row->choice.slices, row->choice.predicted_us);
        json_timing(file, "out_of_place", &row->out_of_place);
        if (row->has_in_place) {
            fprintf(file, ",\n     ");
            json_timing(file, "in_place", &row->in_place);
        }
        fprintf(file, "}");
    }
    fprintf(file,
            "\n  ],\n  \"memory_of_a_rank\": {\"host\": %zu, \"shared\": %zu, "
            "\"shared_used\": %zu, \"mapped\": %zu, \"descriptors\": %d, "
            "\"device\": %zu, \"pinned\": %zu},",
            result->memory.host, result->memory.shared, result->memory.shared_used,
            result->memory.mapped, result->memory.descriptors, result->memory.device,
            result->memory.pinned);
    fprintf(file, "\n  \"out_of_bounds\": %lld,\n  \"avg_busbw_gbs\": %.4f\n}\n", result->wrong,
            result->busbw_count ? result->busbw_sum / (double)result->busbw_count : 0);
    return finish_file(file, o->json);
}

static int write_csv(const struct bench_options *o, const struct bench_result *result)
{
    FILE *file = open_file(o->csv);
    if (!file)
        return 1;
    fprintf(file, "size,count,type,redop,root,time_us,algbw_gbs,busbw_gbs,wrong,in_place_time_us,"
                  "in_place_algbw_gbs,in_place_busbw_gbs,in_place_wrong,p50_us,p99_us,algorithm\n");
    for (size_t i = 0; i < result->count; i++) {
        const struct bench_row *row = &result->rows[i];
        const struct bench_timing *a = &row->out_of_place, *b = &row->in_place;
        fprintf(file, "%zu,%zu,%s,%s,%d,%.4f,%.4f,%.4f,%lld,", row->bytes, row->count,
                bench_type_name(row->type), row->op < 0 ? "none" : bench_op_name(row->op),
                row->root, a->time_us, a->algbw, a->busbw, a->wrong);
        if (row->has_in_place)
            fprintf(file, "%.4f,%.4f,%.4f,%lld,", b->time_us, b->algbw, b->busbw, b->wrong);
        else
            fprintf(file, ",,,,");
        fprintf(file, "%.4f,%.4f,%s\n", a->p50_us, a->p99_us, row->choice.algorithm);
    }
    return finish_file(file, o->csv);
}

static void print_memory(const struct tutti_memory *m)
{
    const double mib = 1 << 20;
    printf(
        "# Memory of a rank     : %.2f MiB host, %.2f MiB shared (%.2f in use), %.2f MiB of peers "
        "mapped, %d files\n",
        (double)m->host / mib, (double)m->shared / mib, (double)m->shared_used / mib,
        (double)m->mapped / mib, m->descriptors);
    if (m->device || m->pinned)
        printf("#                        %.2f MiB on the device, %.2f MiB pinned\n",
               (double)m->device / mib, (double)m->pinned / mib);
}

int bench_report_keep(const struct bench_options *o, tutti_comm *comm,
                      const struct bench_result *result)
{
    struct stat status;
    if (!o->json || (stat(o->json, &status) == 0 && !S_ISREG(status.st_mode)))
        return 0; /* a pipe gets it once */
    struct tti_c_locale locale = tti_c_locale_enter();
    const int bad = write_json(o, comm, result, false);
    tti_c_locale_leave(locale);
    return bad;
}

int bench_report_end(const struct bench_options *o, tutti_comm *comm,
                     const struct bench_result *result)
{
    int status = result->wrong ? 1 : 0;
    if (o->explain)
        bench_explain(result, o->cycles);
    printf("# Out of bounds values : %lld %s\n", result->wrong, result->wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n",
           result->busbw_count ? result->busbw_sum / (double)result->busbw_count : 0);
    print_memory(&result->memory);
    printf("#\n");
    fflush(stdout);
    struct tti_c_locale locale = tti_c_locale_enter(); /* a plugin may have set another */
    if (o->json)
        status |= write_json(o, comm, result, true);
    if (o->csv)
        status |= write_csv(o, result);
    if (o->plot)
        status |= bench_plot(o, result, tutti_comm_size(comm), o->plot);
    tti_c_locale_leave(locale);
    return status;
}

/* The picture: bus bandwidth and latency over message size, drawn by gnuplot. */
#include "bench/bench.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_points(FILE *to, const struct bench_result *result)
{
    fprintf(to, "$points << END\n");
    for (size_t i = 0; i < result->count; i++) {
        const struct bench_row *row = &result->rows[i];
        if (row->bytes == 0)
            continue;
        fprintf(to, "%zu %.6f %.6f %.6f %.6f\n", row->bytes, row->out_of_place.busbw,
                row->has_in_place ? row->in_place.busbw : row->out_of_place.busbw,
                row->out_of_place.p50_us, row->out_of_place.p99_us);
    }
    fprintf(to, "END\n");
}

/* Tics at powers of 16 of bytes, "8 B", "128 B", "2 KiB", within the sizes. */
static void write_tics(FILE *to, const struct bench_result *result)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t least = SIZE_MAX, most = 0;
    int told = 0;
    for (size_t i = 0; i < result->count; i++) {
        const size_t bytes = result->rows[i].bytes;
        least = bytes && bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    if (most > 0) /* with room for one size, and for the last tic */
        fprintf(to, "set xrange [%g:%g]\n", (double)least / 1.2, (double)most * 1.2);
    fprintf(to, "set xtics rotate by -30 (");
    const int step = most / 16 > least ? 4 : 1;
    for (int power = 3; power < 48; power += step) {
        const size_t bytes = (size_t)1 << power;
        if (bytes < least || bytes > most)
            continue;
        fprintf(to, "%s'%zu %s' %zu", told++ ? ", " : "", bytes >> (power / 10 * 10),
                units[power / 10], bytes);
    }
    fprintf(to, ")\n");
}

static void write_script(FILE *to, const struct bench_options *o, const struct bench_result *result,
                         int ranks, const char *path)
{
    bool svg = strcmp(strrchr(path, '.'), ".svg") == 0;
    write_points(to, result);
    fprintf(to, "set terminal %s\n",
            svg ? "svg size 1000,460 background rgb 'white'" : "pngcairo size 1000,460");
    fprintf(to, "set output '");
    for (const char *c = path; *c; c++) /* gnuplot doubles a quote within quotes */
        fprintf(to, *c == '\'' ? "''" : "%c", *c);
    fprintf(to, "'\n");
    write_tics(to, result);
    fprintf(to,
            "set multiplot layout 1,2 title 'Tutti %s, %d rank%s, %s memory' noenhanced\n"
            "set logscale x 2\nset grid\n"
            "set xlabel 'size'\nset key top left\n"
            "set ylabel 'bus bandwidth (GB/s)'\nset yrange [0:*]\n"
            "plot $points using 1:2 with linespoints pt 7 ps 0.6 lw 2 title 'out of place', "
            "$points using 1:3 with linespoints pt 6 ps 0.6 lw 2 title 'in place'\n"
            "set ylabel 'latency (us)'\nset logscale y 10\nset autoscale y\n"
            "plot $points using 1:4 with linespoints pt 7 ps 0.6 lw 2 title 'median', "
            "$points using 1:5 with linespoints pt 6 ps 0.6 lw 2 title '99th percentile'\n"
            "unset multiplot\n",
            bench_collective_label(o->collective, o->uneven), ranks, ranks == 1 ? "" : "s",
            bench_memory_name(o));
}

static pid_t start_gnuplot(int *input)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("gnuplot", "gnuplot", "-", (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    if (pid < 0)
        close(ends[1]);
    *input = ends[1];
    return pid;
}

int bench_plot(const struct bench_options *o, const struct bench_result *result, int ranks,
               const char *path)
{
    int input = -1, status = 0;
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); /* gnuplot may be missing */
    pid_t pid = start_gnuplot(&input);
    FILE *to = pid > 0 ? fdopen(input, "w") : NULL;
    if (!to) {
        fprintf(stderr, "allreduce_bench: cannot start gnuplot: %s\n", strerror(errno));
        return 1;
    }
    write_script(to, o, result, ranks, path);
    fclose(to);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    signal(SIGPIPE, before);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        printf("# Plot: %s\n", path);
        return 0;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        fprintf(stderr, "allreduce_bench: --plot needs gnuplot (apt install gnuplot-nox)\n");
    else
        fprintf(stderr, "allreduce_bench: gnuplot could not draw %s (its own message is above)\n",
                path);
    return 1;
}

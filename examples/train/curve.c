/* The log of a run and its picture (curve.h). */
#include "examples/train/curve.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char curve_head[] = "# step\tloss\trate\tnorm\tms\tper_second\tcheck\n";

static int curve_keep(struct curve *c, const struct curve_point *point)
{
    if (c->count == c->capacity) {
        const size_t more = c->capacity ? 2 * c->capacity : 256;
        struct curve_point *grown = realloc(c->points, more * sizeof *grown);
        if (!grown) {
            fprintf(stderr, "log: no memory for %zu steps\n", more);
            return 1;
        }
        c->points = grown;
        c->capacity = more;
    }
    c->points[c->count++] = *point;
    return 0;
}

static void curve_write(FILE *to, const struct curve_point *p)
{
    fprintf(to, "%llu\t%.9g\t%.6g\t%.6g\t%.3f\t%.1f\t%.9g\n", (unsigned long long)p->step, p->loss,
            p->rate, p->norm, p->ms, p->per_second, p->check);
}

static int curve_read(struct curve *c, const char *path, uint64_t from)
{
    char line[512];
    FILE *in = from > 0 ? fopen(path, "r") : NULL;
    int failed = 0;
    while (in && !failed && fgets(line, sizeof line, in)) {
        struct curve_point p = {0};
        unsigned long long step = 0;
        if (sscanf(line, "%llu %lf %lf %lf %lf %lf %lf", &step, &p.loss, &p.rate, &p.norm, &p.ms,
                   &p.per_second, &p.check) != 7)
            continue; /* the head, or a line that a kill cut off */
        p.step = step;
        if (p.step <= from)
            failed = curve_keep(c, &p);
    }
    if (in)
        fclose(in);
    return failed;
}

int curve_open(struct curve *c, const char *path, uint64_t from)
{
    *c = (struct curve){0};
    if (!path)
        return 0;
    if (curve_read(c, path, from))
        return 1;
    c->log = fopen(path, "w");
    if (!c->log) {
        fprintf(stderr, "log: cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    fputs(curve_head, c->log);
    for (size_t i = 0; i < c->count; i++)
        curve_write(c->log, &c->points[i]);
    return 0;
}

int curve_again(struct curve *c, const char *path, uint64_t from)
{
    if (c->count > 0 && !path)
        return 0;
    curve_close(c);
    return curve_open(c, path, from);
}

int curve_add(struct curve *c, const struct curve_point *point)
{
    if (curve_keep(c, point))
        return 1;
    if (c->log) {
        curve_write(c->log, point);
        fflush(c->log);
    }
    return 0;
}

void curve_close(struct curve *c)
{
    if (c->log)
        fclose(c->log);
    free(c->points);
    *c = (struct curve){0};
}

/* ---- The picture ------------------------------------------------------------------------------
 */

enum { WIDTH = 760, HEIGHT = 420, LEFT = 64, RIGHT = 20, TOP = 40, BOTTOM = 48 };

struct axes {
    double steps, low, high, tick;
};

static double axes_x(const struct axes *a, double step)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (a->steps > 0 ? step / a->steps : 0);
}

static double axes_y(const struct axes *a, double value)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - a->low) / (a->high - a->low);
}

/* A round distance (1, 2 or 5 times a power of ten) that makes about `wanted` of `range`. */
static double axes_round(double range, int wanted)
{
    const double rough = range / wanted, power = pow(10, floor(log10(rough)));
    const double lead = rough / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

static struct axes axes_of(const struct curve *c)
{
    struct axes a = {.low = 0, .high = 0};
    for (size_t i = 0; i < c->count; i++) {
        const struct curve_point *p = &c->points[i];
        a.steps = fmax(a.steps, (double)p->step);
        if (isfinite(p->loss))
            a.high = fmax(a.high, p->loss);
        if (isfinite(p->check))
            a.high = fmax(a.high, p->check);
    }
    a.high = a.high > 0 ? a.high : 1;
    a.tick = axes_round(a.high, 6);
    a.high = a.tick * ceil(a.high / a.tick);
    return a;
}

static void draw_axes(FILE *out, const struct axes *a, const char *title)
{
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n"
            "<rect width='100%%' height='100%%' fill='white'/>\n"
            "<text x='%d' y='22' font-size='14'>",
            (int)WIDTH, (int)HEIGHT, (int)LEFT);
    for (const char *t = title; *t; t++)
        if (*t == '<' || *t == '&')
            fputs(*t == '<' ? "&lt;" : "&amp;", out);
        else
            putc(*t, out);
    fputs("</text>\n", out);
    for (int i = 0; i * a->tick <= a->high + a->tick / 2; i++) {
        const double y = i * a->tick;
        fprintf(out,
                "<path d='M%d %.1fH%d' stroke='#ddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                (int)LEFT, axes_y(a, y), WIDTH - RIGHT, LEFT - 8, axes_y(a, y) + 4, y);
    }
    const double tick = a->steps > 0 ? fmax(1, axes_round(a->steps, 8)) : 1;
    for (int i = 0; i * tick <= a->steps; i++) {
        const double x = i * tick;
        fprintf(out,
                "<path d='M%.1f %dV%d' stroke='#eee'/>"
                "<text x='%.1f' y='%d' text-anchor='middle'>%.0f</text>\n",
                axes_x(a, x), (int)TOP, HEIGHT - BOTTOM, axes_x(a, x), HEIGHT - BOTTOM + 18, x);
    }
    fprintf(out, "<text x='%d' y='%d' text-anchor='middle'>step</text>\n", (LEFT + WIDTH) / 2,
            HEIGHT - 10);
}

static void draw_line(FILE *out, const struct curve *c, const struct axes *a, int check,
                      const char *name)
{
    const char *colour = check ? "#d1495b" : "#2e6f9e";
    fprintf(out, "<path fill='none' stroke='%s' stroke-width='1.6' d='", colour);
    char move = 'M';
    for (size_t i = 0; i < c->count; i++) {
        const double value = check ? c->points[i].check : c->points[i].loss;
        if (!isfinite(value))
            continue;
        fprintf(out, "%c%.1f %.1f", move, axes_x(a, (double)c->points[i].step), axes_y(a, value));
        move = 'L';
    }
    fprintf(out, "'/>\n<text x='%d' y='%d' text-anchor='end' fill='%s'>%s</text>\n", WIDTH - RIGHT,
            TOP + 14 + 16 * check, colour, name);
}

int curve_draw(const struct curve *c, const char *path, const char *title, const char *check)
{
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "plot: cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    const struct axes a = axes_of(c);
    draw_axes(out, &a, title);
    draw_line(out, c, &a, 0, "training loss");
    if (check)
        draw_line(out, c, &a, 1, check);
    fputs("</svg>\n", out);
    if (fclose(out) != 0) {
        fprintf(stderr, "plot: cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    return 0;
}

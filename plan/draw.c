/* Plans as a picture (plan/draw.h): first a logical time for every step, then the SVG. */
#include "plan/draw.h"

#include "base/c_locale.h"
#include "base/memory.h"
#include "plan/print.h"

#include <stdlib.h>
#include <string.h>

/* Pixels. */
enum {
    DRAW_BOX_WIDTH = 116,
    DRAW_BOX_HEIGHT = 36,
    DRAW_LANE_PITCH = DRAW_BOX_WIDTH + 10,
    DRAW_RANK_PAD = 14, /* inside a rank's column, each side */
    DRAW_RANK_GAP = 14, /* between columns */
    DRAW_ROW = 80,
    DRAW_LEFT = 56,
    DRAW_TOP = 146,
    DRAW_RIGHT = 24,
    DRAW_BOTTOM = 28,
    DRAW_LEAST_WIDTH = 850, /* room for the legend */
};

enum { DRAW_NONE = -1 };

/* ---- time ---- */

struct draw_step {
    int32_t depth;  /* logical time, DRAW_NONE until known */
    int32_t next;   /* the lane's next step that sends on the same channel */
    int32_t source; /* flat number of the step whose message this one takes */
};

struct draw_channel {
    int32_t first, last, head; /* the sender's steps */
};

struct draw {
    struct tti_plan *const *plans;
    int nranks, lanes; /* lanes: the most of any rank */
    FILE *file;
    size_t *base; /* flat number of step 0 of lane rank * lanes + lane */
    struct draw_step *steps;
    struct draw_channel *channels; /* [from][to][lane] */
    size_t *done;                  /* steps of each lane that have a depth */
    size_t nsteps;
    int32_t rows;
    int *left; /* x of each rank's column, and the end of the last one */
};

static const struct tti_lane *draw_lane(const struct draw *draw, int rank, int lane)
{
    static const struct tti_lane none = {0};
    return lane < draw->plans[rank]->nlanes ? &draw->plans[rank]->lanes[lane] : &none;
}

static bool draw_has_peers(const struct draw *draw, const struct tti_step *step)
{
    return step->from < draw->nranks && step->to < draw->nranks;
}

static struct draw_channel *draw_channel(const struct draw *draw, int from, int to, int lane)
{
    return &draw->channels[((size_t)from * (size_t)draw->nranks + (size_t)to) *
                               (size_t)draw->lanes +
                           (size_t)lane];
}

static enum tutti_result draw_allocate(struct draw *draw)
{
    size_t n = (size_t)draw->nranks;
    for (int rank = 0; rank < draw->nranks; rank++) {
        const struct tti_plan *plan = draw->plans[rank];
        draw->lanes = plan->nlanes > draw->lanes ? plan->nlanes : draw->lanes;
        for (int lane = 0; lane < plan->nlanes; lane++)
            draw->nsteps += plan->lanes[lane].count;
    }
    size_t lanes = (size_t)draw->lanes;
    draw->base = tti_calloc(n * lanes, sizeof *draw->base);
    draw->done = tti_calloc(n * lanes, sizeof *draw->done);
    draw->steps = tti_calloc(draw->nsteps, sizeof *draw->steps);
    draw->channels = tti_calloc(n * n * lanes, sizeof *draw->channels);
    draw->left = tti_calloc(n + 1, sizeof *draw->left);
    bool all = draw->base && draw->done && draw->steps && draw->channels && draw->left;
    return all ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void draw_release(struct draw *draw)
{
    free(draw->base);
    free(draw->done);
    free(draw->steps);
    free(draw->channels);
    free(draw->left);
}

/* Chain up what each channel carries. */
static enum tutti_result draw_connect(struct draw *draw)
{
    for (size_t c = 0; c < (size_t)draw->nranks * (size_t)draw->nranks * (size_t)draw->lanes; c++)
        draw->channels[c] = (struct draw_channel){DRAW_NONE, DRAW_NONE, DRAW_NONE};
    size_t base = 0;
    for (int rank = 0; rank < draw->nranks; rank++)
        for (int lane = 0; lane < draw->lanes; lane++) {
            const struct tti_lane *steps = draw_lane(draw, rank, lane);
            draw->base[rank * draw->lanes + lane] = base;
            for (size_t s = 0; s < steps->count; s++) {
                const struct tti_step *step = &steps->steps[s];
                draw->steps[base + s] = (struct draw_step){DRAW_NONE, DRAW_NONE, DRAW_NONE};
                if (!draw_has_peers(draw, step))
                    return TTI_FAIL(TUTTI_ERR_INTERNAL,
                                    "drawing: rank %d lane %d step %zu has a peer that is no rank",
                                    rank, lane, s);
                if (step->to < 0)
                    continue;
                struct draw_channel *channel = draw_channel(draw, rank, step->to, lane);
                if (channel->last == DRAW_NONE)
                    channel->first = channel->head = (int32_t)s;
                else
                    draw->steps[base + (size_t)channel->last].next = (int32_t)s;
                channel->last = (int32_t)s;
            }
            base += steps->count;
        }
    return TUTTI_OK;
}

/* Give the lane's next step its time; false when the message that it takes has none yet. */
static bool draw_place(struct draw *draw, int rank, int lane)
{
    size_t at = (size_t)(rank * draw->lanes + lane), s = draw->done[at];
    const struct tti_step *step = &draw_lane(draw, rank, lane)->steps[s];
    struct draw_step *placed = &draw->steps[draw->base[at] + s];
    int32_t depth = s ? draw->steps[draw->base[at] + s - 1].depth + 1 : 0;
    if (step->from >= 0) {
        struct draw_channel *channel = draw_channel(draw, step->from, rank, lane);
        size_t sender = (size_t)(step->from * draw->lanes + lane);
        if (channel->head == DRAW_NONE || draw->done[sender] <= (size_t)channel->head)
            return false;
        placed->source = (int32_t)(draw->base[sender] + (size_t)channel->head);
        channel->head = draw->steps[placed->source].next;
        if (draw->steps[placed->source].depth >= depth)
            depth = draw->steps[placed->source].depth + 1;
    }
    placed->depth = depth;
    draw->rows = depth + 1 > draw->rows ? depth + 1 : draw->rows;
    draw->done[at]++;
    return true;
}

static enum tutti_result draw_place_all(struct draw *draw)
{
    TTI_TRY(draw_connect(draw));
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < draw->nranks; rank++)
            for (int lane = 0; lane < draw->lanes; lane++)
                while (draw->done[rank * draw->lanes + lane] < draw_lane(draw, rank, lane)->count &&
                       draw_place(draw, rank, lane))
                    moved = true;
    }
    for (int rank = 0; rank < draw->nranks; rank++)
        for (int lane = 0; lane < draw->lanes; lane++) {
            size_t s = draw->done[rank * draw->lanes + lane];
            const struct tti_lane *steps = draw_lane(draw, rank, lane);
            if (s < steps->count)
                return TTI_FAIL(TUTTI_ERR_INTERNAL,
                                "drawing: rank %d lane %d step %zu waits for a message from rank "
                                "%d that never comes; verify the plans",
                                rank, lane, s, steps->steps[s].from);
        }
    return TUTTI_OK;
}

/* ---- picture ---- */

static const char *const draw_fill[] = {
    [TTI_COPY] = "#e2e6ea", [TTI_REDUCE] = "#ffd8a8",      [TTI_SEND] = "#cfe3fb",
    [TTI_RECV] = "#c9edd3", [TTI_RECV_REDUCE] = "#e3d3f7",
};

static void draw_text(const struct draw *draw, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", draw->file);
        else if (*text == '>')
            fputs("&gt;", draw->file);
        else if (*text == '&')
            fputs("&amp;", draw->file);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, draw->file);
    }
}

/* Hues dealt out around the circle, dark enough for lines. */
static void chunk_colour(uint32_t chunk, uint32_t chunks, char text[8])
{
    double hue = 6.0 * (double)chunk / (double)chunks;
    int rgb[3];
    for (int i = 0; i < 3; i++) {
        double along = hue < 2.0 * i ? hue - 2.0 * i + 6.0 : hue - 2.0 * i;
        double from_peak = along > 3.0 ? 6.0 - along : along; /* each component peaks once */
        double level = from_peak < 1.0 ? 1.0 : from_peak > 2.0 ? 0.0 : 2.0 - from_peak;
        rgb[i] = (int)(40.0 + 160.0 * level);
    }
    snprintf(text, 8, "#%02x%02x%02x", (unsigned)rgb[0] & 0xff, (unsigned)rgb[1] & 0xff,
             (unsigned)rgb[2] & 0xff);
}

static int box_x(const struct draw *draw, int rank, int lane)
{
    return draw->left[rank] + DRAW_RANK_PAD + lane * DRAW_LANE_PITCH;
}

static int box_y(int32_t depth)
{
    return DRAW_TOP + depth * DRAW_ROW + (DRAW_ROW - DRAW_BOX_HEIGHT) / 2;
}

static void draw_head(const struct draw *draw, const char *title)
{
    const struct tti_plan *plan = draw->plans[0];
    int width = draw->left[draw->nranks] - DRAW_RANK_GAP + DRAW_RIGHT;
    width = width < DRAW_LEAST_WIDTH ? DRAW_LEAST_WIDTH : width;
    int height = DRAW_TOP + draw->rows * DRAW_ROW + DRAW_BOTTOM;
    fprintf(draw->file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n"
            "<text x=\"%d\" y=\"34\" font-size=\"20\" font-weight=\"bold\" fill=\"#212529\">",
            width, height, width, height, width, height, DRAW_LEFT);
    draw_text(draw, title ? title : tutti_collective_name(plan->spec.collective));
    fprintf(draw->file,
            "</text>\n<text x=\"%d\" y=\"56\" font-size=\"12\" fill=\"#495057\">%s, %d rank%s, %d "
            "lane%s, %u chunk%s a block, %d logical steps</text>\n",
            DRAW_LEFT, tutti_collective_name(plan->spec.collective), draw->nranks,
            draw->nranks == 1 ? "" : "s", draw->lanes, draw->lanes == 1 ? "" : "s", plan->chunks,
            plan->chunks == 1 ? "" : "s", draw->rows);
}

static void draw_legend(const struct draw *draw)
{
    static const struct {
        int kind;
        const char *name;
    } entries[] = {{TTI_SEND, "send"},
                   {TTI_RECV, "receive"},
                   {TTI_RECV_REDUCE, "receive + reduce"},
                   {TTI_COPY, "copy"},
                   {TTI_REDUCE, "reduce"}};
    int x = DRAW_LEFT;
    fputs("<g class=\"legend\" font-size=\"11\" fill=\"#343a40\">\n", draw->file);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        fprintf(draw->file,
                "<rect x=\"%d\" y=\"69\" width=\"16\" height=\"13\" rx=\"3\" fill=\"%s\" "
                "stroke=\"#868e96\"/><text x=\"%d\" y=\"80\">%s</text>\n",
                x, draw_fill[entries[i].kind], x + 22, entries[i].name);
        x += 42 + 6 * (int)strlen(entries[i].name);
    }
    fprintf(draw->file,
            "<rect x=\"%d\" y=\"69\" width=\"16\" height=\"13\" rx=\"3\" fill=\"#ffffff\" "
            "stroke=\"#212529\" stroke-width=\"2\"/><text x=\"%d\" y=\"80\">final result</text>\n",
            x, x + 22);
    x += 42 + 6 * 12;
    fprintf(draw->file,
            "<path d=\"M%d 76h20\" stroke=\"#2870c8\" stroke-width=\"2\"/><text x=\"%d\" "
            "y=\"80\">message, coloured by chunk</text>\n</g>\n",
            x, x + 26);
}

static void draw_columns(const struct draw *draw)
{
    int height = draw->rows * DRAW_ROW + 50;
    for (int rank = 0; rank < draw->nranks; rank++) {
        int x = draw->left[rank], width = draw->left[rank + 1] - x - DRAW_RANK_GAP;
        fprintf(draw->file,
                "<g class=\"rank\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" "
                "fill=\"%s\"/><text x=\"%d\" y=\"%d\" font-size=\"14\" font-weight=\"bold\" "
                "fill=\"#212529\" text-anchor=\"middle\">rank %d</text></g>\n",
                x, DRAW_TOP - 48, width, height, rank % 2 ? "#f4f5f7" : "#eef0f3", x + width / 2,
                DRAW_TOP - 28, rank);
        for (int lane = 0; draw->lanes > 1 && lane < draw->plans[rank]->nlanes; lane++)
            fprintf(draw->file,
                    "<text x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#868e96\" "
                    "text-anchor=\"middle\">lane %d</text>\n",
                    box_x(draw, rank, lane) + DRAW_BOX_WIDTH / 2, DRAW_TOP - 10, lane);
    }
    for (int32_t row = 0; row < draw->rows; row++)
        fprintf(draw->file,
                "<text x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#868e96\" "
                "text-anchor=\"end\">%d</text>\n",
                DRAW_LEFT - 12, box_y(row) + DRAW_BOX_HEIGHT / 2 + 4, row);
}

/* The line of a message, from the bottom of the step that sends to the top of the one that takes.
 */
static void draw_message(const struct draw *draw, int rank, int lane, const struct tti_step *step,
                         const struct draw_step *placed)
{
    char colour[8];
    chunk_colour(step->chunk, draw->plans[rank]->chunks, colour);
    int x1 = box_x(draw, step->from, lane) + DRAW_BOX_WIDTH / 2;
    int y1 = box_y(draw->steps[placed->source].depth) + DRAW_BOX_HEIGHT;
    int x2 = box_x(draw, rank, lane) + DRAW_BOX_WIDTH / 2, y2 = box_y(placed->depth);
    int bend = (y2 - y1) / 2 - 4;
    bend = bend > 60 ? 60 : bend;
    fprintf(draw->file,
            "<g class=\"message\"><path d=\"M%d %dC%d %d %d %d %d %d\" fill=\"none\" stroke=\"%s\" "
            "stroke-width=\"1.6\" stroke-opacity=\"0.75\"/><path d=\"M%d %dl-4 -7h8z\" "
            "fill=\"%s\"/></g>\n",
            x1, y1, x1, y1 + bend, x2, y2 - 4 - bend, x2, y2 - 5, colour, x2, y2, colour);
}

/* "SLOT 1"; just "OUT" where the index says no more than the chunks above it do. */
static void draw_ref(const struct tti_step *step, struct tti_ref ref, char *text, size_t bytes)
{
    const char *name = tti_buffer_name(ref.buffer);
    if (ref.buffer != TTI_SLOT && ref.index == step->chunk)
        snprintf(text, bytes, "%s", name);
    else if (step->nchunks == 1)
        snprintf(text, bytes, "%s %u", name, ref.index);
    else
        snprintf(text, bytes, "%s %u-%u", name, ref.index, ref.index + step->nchunks - 1);
}

/* "SLOT 1 = IN + msg" */
static void draw_work(const struct tti_step *step, char *text, size_t bytes)
{
    char src[48], src2[48] = "msg", dst[48];
    draw_ref(step, step->src, src, sizeof src);
    draw_ref(step, step->dst, dst, sizeof dst);
    if (step->kind == TTI_REDUCE)
        draw_ref(step, step->src2, src2, sizeof src2);
    bool left = step->flags & TTI_MSG_LEFT;
    if (step->kind == TTI_SEND)
        snprintf(text, bytes, "%s", src);
    else if (step->kind == TTI_COPY || step->kind == TTI_RECV)
        snprintf(text, bytes, "%s = %s", dst, step->kind == TTI_COPY ? src : "msg");
    else if (!left && strcmp(src, dst) == 0)
        snprintf(text, bytes, "%s += %s", dst, src2);
    else
        snprintf(text, bytes, "%s = %s + %s", dst, left ? src2 : src, left ? src : src2);
}

static void draw_box(const struct draw *draw, int rank, int lane, size_t s,
                     const struct tti_step *step, const struct draw_step *placed)
{
    char colour[8], text[TTI_STEP_TEXT_BYTES], work[160];
    uint32_t chunks = draw->plans[rank]->chunks;
    chunk_colour(step->chunk, chunks, colour);
    draw_work(step, work, sizeof work);
    int x = box_x(draw, rank, lane), y = box_y(placed->depth);
    bool final = step->flags & TTI_FINAL;
    fprintf(draw->file, "<g class=\"step\"><title>rank %d lane %d step %zu: ", rank, lane, s);
    draw_text(draw, tti_step_text(step, text, sizeof text));
    fprintf(draw->file,
            "</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" "
            "stroke=\"%s\" stroke-width=\"%s\"/><rect x=\"%d\" y=\"%d\" width=\"4\" height=\"%d\" "
            "rx=\"2\" fill=\"%s\"/>",
            x, y, DRAW_BOX_WIDTH, DRAW_BOX_HEIGHT,
            draw_fill[step->kind <= TTI_RECV_REDUCE ? step->kind : TTI_COPY],
            final ? "#212529" : "#adb5bd", final ? "2" : "1", x + 4, y + 5, DRAW_BOX_HEIGHT - 10,
            colour);
    int middle = x + DRAW_BOX_WIDTH / 2 + 3;
    fprintf(draw->file,
            "<text x=\"%d\" y=\"%d\" font-size=\"12\" font-weight=\"bold\" fill=\"#212529\" "
            "text-anchor=\"middle\">%s %u",
            middle, y + 15, step->nchunks == 1 ? "chunk" : "chunks", step->chunk);
    if (step->nchunks > 1)
        fprintf(draw->file, "-%u", (step->chunk + step->nchunks - 1) % chunks);
    double room = (DRAW_BOX_WIDTH - 18) / (0.6 * (double)(strlen(work) + 1));
    fprintf(draw->file,
            "</text><text x=\"%d\" y=\"%d\" font-size=\"%.1f\" fill=\"#343a40\" "
            "text-anchor=\"middle\">%s</text></g>\n",
            middle, y + 29, room < 10.0 ? room : 10.0, work);
}

static void draw_steps(const struct draw *draw, bool boxes)
{
    for (int rank = 0; rank < draw->nranks; rank++)
        for (int lane = 0; lane < draw->plans[rank]->nlanes; lane++)
            for (size_t s = 0; s < draw->plans[rank]->lanes[lane].count; s++) {
                const struct tti_step *step = &draw->plans[rank]->lanes[lane].steps[s];
                const struct draw_step *placed =
                    &draw->steps[draw->base[rank * draw->lanes + lane] + s];
                if (boxes)
                    draw_box(draw, rank, lane, s, step, placed);
                else if (placed->source != DRAW_NONE)
                    draw_message(draw, rank, lane, step, placed);
            }
}

static enum tutti_result draw_all(struct draw *draw, const char *title)
{
    TTI_TRY(draw_allocate(draw));
    TTI_TRY(draw_place_all(draw));
    draw->left[0] = DRAW_LEFT;
    for (int rank = 0; rank < draw->nranks; rank++) {
        int lanes = draw->plans[rank]->nlanes > 0 ? draw->plans[rank]->nlanes : 1;
        draw->left[rank + 1] = draw->left[rank] + 2 * DRAW_RANK_PAD + lanes * DRAW_LANE_PITCH -
                               (DRAW_LANE_PITCH - DRAW_BOX_WIDTH) + DRAW_RANK_GAP;
    }
    draw_head(draw, title);
    draw_legend(draw);
    draw_columns(draw);
    draw_steps(draw, true);
    draw_steps(draw, false);
    fputs("</svg>\n", draw->file);
    if (fflush(draw->file) != 0 || ferror(draw->file))
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "writing a picture of plans: the output failed");
    return TUTTI_OK;
}

enum tutti_result tti_plan_draw(struct tti_plan *const *plans, int nranks, const char *title,
                                FILE *file)
{
    if (nranks < 1 || nranks > TTI_DRAW_RANKS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "drawing the plans of %d ranks: 1 to %d can be drawn",
                        nranks, TTI_DRAW_RANKS);
    struct draw draw = {.plans = plans, .nranks = nranks, .file = file};
    struct tti_c_locale locale = tti_c_locale_enter();
    enum tutti_result result = draw_all(&draw, title);
    tti_c_locale_leave(locale);
    draw_release(&draw);
    return result;
}

#include "report/svg_internal.h"

#include "report/html.h"

/* Nodes stand in one column in order of execution. An edge to the next node is a straight line;
 * every other edge runs through a lane left of the nodes, one lane a source, as wires on a circuit
 * drawing: a dot is a connection, lines that cross without a dot are not connected. */

/* Layout in user units. */
static const double row_pitch = 30.0;
static const double lane_pitch = 13.0;
static const double margin = 10.0;
static const double leave_drop = 9.0; /* edges leave below the node, so that none runs into one that
                                         arrives */

enum { NO_LANE = -1 };

struct lanes {
    int lane[ESPL_SVG_MAX_NODES];    /* of a source, or NO_LANE */
    size_t last[ESPL_SVG_MAX_NODES]; /* last node that the lane of a source reaches */
    int count;
};

static size_t drawn_nodes(const struct espl_svg_graph *graph)
{
    return graph->node_count < ESPL_SVG_MAX_NODES ? graph->node_count : ESPL_SVG_MAX_NODES;
}

/* Does a lane of an earlier source still run past node `at`? */
static bool lane_is_taken(const struct lanes *lanes, int lane, size_t at)
{
    for (size_t i = 0; i < at; ++i) {
        if (lanes->lane[i] == lane && lanes->last[i] >= at) {
            return true;
        }
    }
    return false;
}

/* Gives every source with a consumer past the next node the first lane that is free on its way. */
static void assign_lanes(const struct espl_svg_graph *graph, struct lanes *lanes)
{
    const size_t count = drawn_nodes(graph);
    lanes->count = 0;
    for (size_t i = 0; i < count; ++i) {
        lanes->lane[i] = NO_LANE;
        lanes->last[i] = i;
    }
    for (size_t i = 0; i < count; ++i) {
        for (size_t j = 0; j < graph->nodes[i].input_count; ++j) {
            const size_t source = graph->nodes[i].inputs[j];
            if (source + 1 < i) {
                lanes->last[source] = i;
            }
        }
    }
    for (size_t i = 0; i < count; ++i) {
        if (lanes->last[i] == i) {
            continue;
        }
        int lane = 0;
        while (lane_is_taken(lanes, lane, i)) {
            ++lane;
        }
        lanes->lane[i] = lane;
        lanes->count = lane + 1 > lanes->count ? lane + 1 : lanes->count;
    }
}

static double node_y(size_t index)
{
    return margin + row_pitch * ((double)index + 0.5) - 4.0;
}

static double lane_x(const struct lanes *lanes, int lane)
{
    return margin + lane_pitch * (double)(lanes->count - 1 - lane);
}

static void draw_edges(struct espl_buf *out, const struct espl_svg_graph *graph,
                       const struct lanes *lanes, double node_x)
{
    const size_t count = drawn_nodes(graph);
    for (size_t i = 0; i < count; ++i) {
        if (lanes->lane[i] != NO_LANE) {
            const double x = lane_x(lanes, lanes->lane[i]);
            espl_buf_printf(out, "<path class=\"edge\" d=\"M%.1f %.1fV%.1fH%.1fV%.1f\"/>\n", node_x,
                            node_y(i), node_y(i) + leave_drop, x, node_y(lanes->last[i]));
        }
        for (size_t j = 0; j < graph->nodes[i].input_count; ++j) {
            const size_t source = graph->nodes[i].inputs[j];
            if (source + 1 == i) {
                espl_buf_printf(out,
                                "<path class=\"edge\" d=\"M%.1f %.1fV%.1f\"/>"
                                "<path class=\"arrow\" d=\"M%.1f %.1fl-3.5 -6h7z\"/>\n",
                                node_x, node_y(source), node_y(i), node_x, node_y(i) - 6.0);
            } else if (source < i && lanes->lane[source] != NO_LANE) {
                const double x = lane_x(lanes, lanes->lane[source]);
                espl_buf_printf(out,
                                "<path class=\"edge\" d=\"M%.1f %.1fH%.1f\"/>"
                                "<circle class=\"joint\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\"/>"
                                "<path class=\"arrow\" d=\"M%.1f %.1fl-6 -3.5v7z\"/>\n",
                                x, node_y(i), node_x, x, node_y(i), node_x - 6.0, node_y(i));
            }
        }
    }
}

void espl_svg_graph(struct espl_buf *out, const struct espl_svg_graph *graph)
{
    struct lanes lanes;
    const size_t count = drawn_nodes(graph);
    assign_lanes(graph, &lanes);
    const double node_x = margin + lane_pitch * (double)lanes.count + 10.0;
    espl_svg_open(out, &graph->head, margin * 2.0 + row_pitch * (double)count - 8.0);
    draw_edges(out, graph, &lanes, node_x);
    for (size_t i = 0; i < count; ++i) {
        const double y = node_y(i);
        espl_buf_printf(out,
                        "<circle class=\"node\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>"
                        "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">",
                        node_x, y, node_x + 16.0, y + 4.0);
        espl_html_text_cut(out, graph->nodes[i].label, 22);
        espl_buf_printf(out, "</text><text class=\"soft\" x=\"%.1f\" y=\"%.1f\">", node_x + 180.0,
                        y + 4.0);
        espl_html_text_cut(out, graph->nodes[i].detail, 44);
        espl_buf_printf(out, "</text><text class=\"remark\" x=\"%d\" y=\"%.1f\">",
                        ESPL_SVG_WIDTH - 10, y + 4.0);
        espl_html_text_cut(out, graph->nodes[i].remark, 32);
        espl_buf_puts(out, "</text>\n");
    }
    espl_svg_close(out);
}

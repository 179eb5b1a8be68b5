#include "report/report_style.h"

#include <stddef.h>

/* Series colours are those of Okabe and Ito's colour-blind-safe set, darkened or lightened for
 * contrast with the page. Every series also has its own dash, marker and fill pattern (svg.c). */
const char *const espl_svg_style[] = {
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#59626d;"
    "--line:#d9dde2;--tint:#f4f6f8;--s0:#0a6aa6;--s1:#c2530a;--s2:#00805e;--s3:#a64d83;"
    "--s4:#8a6400;--s5:#3d4a57;--good:#00694d;--bad:#b3420a}\n",
    "@media (prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#e4e7ea;--soft:#9aa4af;"
    "--line:#343a41;--tint:#1d2125;--s0:#62b6ea;--s1:#f2995c;--s2:#4fc9a3;--s3:#dea0c4;"
    "--s4:#e3bd52;--s5:#c3ccd5;--good:#5fd0a8;--bad:#f5a06b}}\n",
    "svg text{font-family:inherit;font-size:12px;fill:var(--ink)}\n",
    "svg .label{text-anchor:end}\n",
    "svg .heading,svg .soft,svg .tick,svg .tick-middle,svg .remark{fill:var(--soft)}\n",
    "svg .tick,svg .tick-middle{font-size:10px}\n",
    "svg .tick,svg .remark{text-anchor:end}\n",
    "svg .tick-middle{text-anchor:middle}\n",
    "svg .name{font-weight:600}\n",
    "svg .remark,svg .value,svg .tick{font-variant-numeric:tabular-nums}\n",
    "svg .axis{stroke:var(--soft);stroke-width:1;fill:none}\n",
    "svg .panel{fill:var(--tint);stroke:none}\n",
    "svg .s0{--c:var(--s0)}svg .s1{--c:var(--s1);--d:6 3}svg .s2{--c:var(--s2);--d:2 2.5}"
    "svg .s3{--c:var(--s3);--d:9 3 2 3}svg .s4{--c:var(--s4);--d:1 4}svg .s5{--c:var(--s5);"
    "--d:12 5}\n",
    "svg .bar{fill:var(--c)}\n",
    "svg .hatched{stroke:var(--c);stroke-width:1}\n",
    "svg .pattern path{stroke:var(--c);stroke-width:1.6;fill:none}\n",
    "svg .pattern .dot{stroke-width:3;stroke-linecap:round}\n",
    "svg .line{fill:none;stroke:var(--c);stroke-width:1.5;stroke-dasharray:var(--d,none)}\n",
    "svg .marker{fill:var(--c);stroke:var(--c);stroke-width:1.2}\n",
    "svg .bound{fill:none;stroke:var(--soft);stroke-width:1.2;stroke-dasharray:5 4}\n",
    "svg .grid{fill:none;stroke:var(--line);stroke-width:1}\n",
    "svg .paper{fill:var(--paper)}\n",
    "svg .edge{fill:none;stroke:var(--soft);stroke-width:1.2}\n",
    "svg .arrow,svg .joint{fill:var(--soft)}\n",
    "svg .node{fill:var(--paper);stroke:var(--s0);stroke-width:2}\n",
    NULL,
};

const char *const espl_report_style[] = {
    "*{box-sizing:border-box}\n",
    "html{-webkit-text-size-adjust:100%}\n",
    "body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"
    "-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif}\n",
    "main{max-width:880px;margin:0 auto;padding:40px 24px 64px}\n",
    "header{margin-bottom:36px}\n",
    ".over{margin:0;color:var(--soft);font-size:13px;letter-spacing:.02em}\n",
    "h1{margin:2px 0 14px;font-size:30px;line-height:1.2;font-weight:650;"
    "letter-spacing:-.01em;overflow-wrap:anywhere}\n",
    "h2{margin:44px 0 10px;padding-top:14px;border-top:1px solid var(--line);"
    "font-size:18px;line-height:1.3;font-weight:650}\n",
    "h3{margin:26px 0 6px;font-size:15px;font-weight:650}\n",
    "p{margin:6px 0 12px;max-width:72ch}\n",
    "a{color:var(--s0);text-underline-offset:2px}\n",
    ".soft,.note{color:var(--soft)}\n",
    ".note{font-size:13px}\n",
    ".verdict{display:flex;gap:10px;align-items:baseline;margin:0 0 16px;padding:11px 14px;"
    "border:1px solid var(--line);border-left:4px solid var(--good);border-radius:4px;"
    "background:var(--tint)}\n",
    ".verdict.bad{border-left-color:var(--bad)}\n",
    ".verdict p{margin:0}\n",
    ".word{font-weight:650;white-space:nowrap}\n",
    ".good{color:var(--good)}\n",
    ".bad .word,.fail{color:var(--bad)}\n",
    ".facts{display:flex;flex-wrap:wrap;gap:6px 28px;margin:0;padding:0}\n",
    ".facts div{min-width:0}\n",
    ".facts dt{color:var(--soft);font-size:12px}\n",
    ".facts dd{margin:0;overflow-wrap:anywhere}\n",
    ".scroll{overflow-x:auto}\n",
    "table{border-collapse:collapse;width:100%;margin:8px 0 4px;font-size:14px;"
    "line-height:1.4}\n",
    "th,td{padding:5px 12px 5px 0;text-align:left;vertical-align:top;border-bottom:1px "
    "solid var(--line)}\n",
    "thead th{color:var(--soft);font-size:12px;font-weight:500;vertical-align:bottom;"
    "border-bottom-color:var(--soft)}\n",
    "tbody th{font-weight:500}\n",
    ".grouped tbody tr:not(:last-child) > *{border-bottom:0}\n",
    "th.number,td.number{text-align:right;font-variant-numeric:tabular-nums;"
    "white-space:nowrap}\n",
    "th:last-child,td:last-child{padding-right:0}\n",
    ".nowrap{white-space:nowrap}\n",
    ".pair{display:inline-block;margin-right:12px;max-width:100%}\n",
    ".narrow{width:auto}\n",
    ".narrow th,.narrow td{padding-right:24px}\n",
    ".number + :not(.number){padding-left:10px}\n",
    "td.wide{overflow-wrap:anywhere;min-width:16ch}\n",
    "code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans "
    "Mono',monospace;font-size:.9em}\n",
    "pre{margin:8px 0;padding:14px 16px;overflow-x:auto;background:var(--tint);border:1px "
    "solid var(--line);border-radius:4px;font-size:13px;line-height:1.45;tab-size:4}\n",
    "figure{margin:12px 0 4px}\n",
    "figure svg{display:block;width:100%;max-width:720px;min-width:560px;height:auto}\n",
    "figcaption{margin:4px 0 6px;color:var(--soft);font-size:13px;max-width:72ch}\n",
    ".legend{display:flex;flex-wrap:wrap;gap:2px 22px;margin:6px 0;padding:0;"
    "list-style:none;font-size:13px}\n",
    ".legend svg{vertical-align:-1px}\n",
    "details{margin:4px 0 14px}\n",
    "summary{color:var(--soft);font-size:13px;cursor:pointer}\n",
    ".trouble{margin:10px 0;padding:10px 14px;border-left:4px solid var(--bad);"
    "background:var(--tint);border-radius:4px}\n",
    ".trouble.warning{border-left-color:var(--s4)}\n",
    ".trouble p{margin:2px 0;overflow-wrap:anywhere;white-space:pre-line}\n",
    "footer{margin-top:48px;color:var(--soft);font-size:13px}\n",
    "@media (max-width:560px){main{padding:24px 16px 40px}h1{font-size:24px}}\n",
    "@page{size:A4;margin:16mm 15mm}\n",
    "@media print{:root{--paper:#fff;--ink:#000;--soft:#444;--line:#bbb;--tint:#f4f4f4;"
    "--s0:#0a6aa6;--s1:#b34a05;--s2:#00704f;--s3:#93406f;--s4:#7a5800;--s5:#333;"
    "--good:#00593f;--bad:#a03a05}body{font-size:10pt}main{max-width:none;padding:0}table{"
    "font-size:9pt}h2{margin-top:22pt}h2,h3,thead,summary{break-after:avoid}tr,figure,"
    ".trouble,.verdict{break-inside:avoid}figure svg{min-width:0}.scroll,pre{"
    "overflow:visible}pre{white-space:pre-wrap;font-size:8.5pt}details::details-content{"
    "content-visibility:visible;display:block}}\n",
    NULL,
};

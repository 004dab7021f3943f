#include "plan/pictures/page.h"

#include <algorithm>

#include "common/base/markup.h"
#include "plan/pictures/chart.h"
#include "plan/pictures/timeline_script.h"

namespace automap::pictures {
namespace {

constexpr const char* kPageStyle = R"css(
:root{color-scheme:light dark;--ink:#1c2530;--dim:#56616d;--paper:#fff;--panel:#f4f6f8;--line:#cdd4db;--hot:#fbe3d6;
--accent:#1d5f9e;--warn:#9a3412}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e6eaef;--dim:#a3aebb;--paper:#14191f;--panel:#1d242c;
--line:#3a4550;--hot:#47301f;--accent:#8cc4f5;--warn:#ffa97a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem 1.25rem 3rem;max-width:80rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0;max-width:60rem}.note{color:var(--dim);font-size:.9rem}.warn{color:var(--warn)}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.7rem .9rem;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.85rem}
.wide+.wide{margin-top:.7rem}.wide{overflow-x:auto;border:1px solid var(--line);border-radius:6px}
.wide:focus-visible,canvas:focus-visible,button:focus-visible,summary:focus-visible{outline:3px solid var(--accent)}
table{border-collapse:collapse;font-size:.9rem;width:100%}caption{text-align:left;padding:.4rem .6rem;color:var(--dim)}
th,td{padding:.3rem .6rem;border-top:1px solid var(--line);text-align:right;vertical-align:top;white-space:nowrap}
thead th{border-top:0;overflow-wrap:normal;background:var(--panel)}
th.w,td.w{text-align:left}td.w{white-space:normal;min-width:9rem}tr.hot>*{background:var(--hot)}
.picture svg{display:block;min-width:46rem;width:100%;height:auto}
.picture.live svg{display:none}.picture canvas{display:block;width:100%;touch-action:pan-y;cursor:grab}
.bar{display:flex;flex-wrap:wrap;gap:.4rem;margin:.4rem 0}.bar[hidden]{display:none}
button{font:inherit;font-size:.9rem;padding:.25rem .7rem;border:1px solid var(--line);border-radius:6px;
background:var(--panel);color:var(--ink);cursor:pointer}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;font-size:.85rem;margin:.4rem 0;max-width:none}
.legend svg{vertical-align:-1px}
output{display:block;min-height:1.6rem;font-size:.9rem;color:var(--dim)}
dl.answer{display:grid;grid-template-columns:6rem 1fr;gap:.25rem 1rem;margin:.8rem 0}
dl.answer dt{color:var(--dim)}dl.answer dd{margin:0}
.swatch{display:inline-block;width:14px;height:11px;border:1px solid var(--line);vertical-align:-1px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
.servers{display:flex;flex-wrap:wrap;gap:.6rem}
.server{margin:0;padding:.4rem .5rem;border:1px solid var(--line);border-radius:6px;max-width:36rem;break-inside:avoid}
.server figcaption{font-size:.8rem;color:var(--dim)}.server>div{display:flex;flex-wrap:wrap;gap:3px;margin-top:.25rem}
.device{display:inline-block;min-width:3.1rem;padding:.15rem .3rem;border-radius:4px;background:var(--panel);
font-size:.72rem;line-height:1.2;color:var(--dim);text-align:center;print-color-adjust:exact;
-webkit-print-color-adjust:exact}.device b{display:block}.device[style]{color:#101820}
.replica{display:inline-flex;flex-wrap:wrap;gap:2px;padding:2px;border:2px solid var(--accent);border-radius:6px}
details{margin:1rem 0}summary{cursor:pointer}details pre{overflow-x:auto;white-space:pre}
.stretch svg{min-width:0;max-width:60rem}
@media (max-width:40rem){body{padding:.7rem .8rem 2rem}dl.answer{grid-template-columns:1fr;gap:0}
dl.answer dd{margin-bottom:.5rem}h1{font-size:1.25rem}}
@media print{html{font-size:11px}body{max-width:none;font-size:1rem;padding:0}.bar,output,.picture canvas{display:none!important}
.picture svg,.picture.live svg{display:block!important;min-width:0}.wide{overflow:visible;border:0}
h2{break-after:avoid}tr,.picture svg{break-inside:avoid}table{font-size:.8rem}th,td{padding:.1rem .3rem;white-space:normal}}
)css";

}  // namespace

std::string page(const std::string& title, const std::string& body) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>" +
                    escape_markup(title) +
                    "</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                    "<link rel=\"icon\" href=\"data:,\"/>\n<style>" +
                    kPageStyle + chart_style() + "</style>\n</head>\n<body>\n<main>\n" + body + "</main>\n";
  if (body.find("class=\"picture zooms ") != std::string::npos) out += timeline_script();
  return out + "</body>\n</html>\n";
}

std::string table_markup(const PageTable& table) {
  const auto of_words = [&](std::size_t column) {
    return column == 0 || std::find(table.words.begin(), table.words.end(), column) != table.words.end();
  };
  const auto cell = [&](const char* tag, const char* scope, std::size_t column, const std::string& text) {
    return "<" + std::string(tag) + scope + (of_words(column) ? " class=\"w\">" : ">") + escape_markup(text) + "</" +
           tag + ">";
  };
  std::string out = "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"" + escape_markup(table.caption) +
                    "\"><table>\n<caption>" + escape_markup(table.caption) + "</caption>\n<thead><tr>";
  for (std::size_t c = 0; c < table.head.size(); ++c) out += cell("th", " scope=\"col\"", c, table.head[c]);
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    out += r == table.marked ? "<tr class=\"hot\">" : "<tr>";
    for (std::size_t c = 0; c < table.rows[r].size(); ++c) {
      out += c == 0 ? cell("th", " scope=\"row\"", c, table.rows[r][c]) : cell("td", "", c, table.rows[r][c]);
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table></div>\n";
}

}  // namespace automap::pictures

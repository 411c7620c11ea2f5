"""Decides how a run page looks: on light and dark screens, and in print."""

from __future__ import annotations

DEFINITIONS = (
    '<svg width="0" height="0" aria-hidden="true" class="definitions"><defs>'
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatching" d="M0 0V6"></path></pattern></defs></svg>'
)

# Okabe and Ito's colours, which people with any colour vision tell apart, darkened or lightened for contrast.
_LIGHT = """
--paper:#fff;--panel:#f6f7f9;--ink:#17202b;--soft:#566171;--rule:#d9dee5;--grid:#e6e9ee;
--blue:#0072b2;--red:#c04a00;--green:#00795a;--purple:#9c4f83;--yellow:#a86f00;--sky:#2f8fc4;--grey:#7b8794;
--wash:.17;--tint:.2;--inside:#fff;color-scheme:light;
"""
_DARK = """
--paper:#11161d;--panel:#19202a;--ink:#e7ebf0;--soft:#a3aebb;--rule:#303a47;--grid:#232c37;
--blue:#5db7ec;--red:#ff8c52;--green:#41c79f;--purple:#dd9cc8;--yellow:#efbf4f;--sky:#8fd0f5;--grey:#8996a5;
--wash:.26;--tint:.28;--inside:#11161d;color-scheme:dark;
"""
_CATEGORIES = ("green", "sky", "purple", "blue", "yellow", "red", "grey", "ink", "rule")

_PAGE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1040px;padding:28px 28px 60px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
h1{font-size:2rem;line-height:1.15;margin:0 0 6px;letter-spacing:-.015em}
h2{font-size:1.3rem;margin:52px 0 14px;padding-top:14px;border-top:2px solid var(--ink)}
h3{font-size:1rem;margin:0 0 2px}
p{margin:0 0 10px}
a{color:var(--blue)}
code{font:.88em ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace}
.over{text-transform:uppercase;letter-spacing:.09em;font-size:.75rem;color:var(--soft);margin:0 0 4px}
.note,.muted{color:var(--soft);font-size:.87rem}
.muted{font-weight:400}
.lead{font-size:1.1rem;font-weight:600;margin-bottom:4px}
.absent{background:var(--panel);border-left:3px solid var(--grey);padding:8px 12px;margin:0 0 14px;color:var(--soft)}
.absent strong{color:var(--ink);font-weight:600}
.skip{position:absolute;left:-999px}
.skip:focus{position:static}
.definitions{position:absolute}
.chip{display:inline-block;font-size:.78rem;line-height:1;font-weight:600;padding:5px 9px;border-radius:99px;
border:1.5px solid currentColor;vertical-align:middle;white-space:nowrap;letter-spacing:0}
h1 .chip{font-size:.95rem;padding:7px 13px;margin-left:6px}
.error,.not-answered{color:var(--red)}.warning,.in-part{color:var(--yellow)}.pass,.answered{color:var(--green)}
.note.chip,.chip.note{color:var(--blue)}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:2px 18px;padding:10px 0;margin:18px 0 0;
border-block:1px solid var(--rule);
font-size:.9rem}
nav a{text-decoration:none}nav a:hover{text-decoration:underline}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:14px 22px;margin:20px 0}
.cards div{border-top:2px solid var(--blue);padding:6px 0 0}
details{margin:0 0 8px}summary{cursor:pointer;margin-bottom:8px;color:var(--soft);font-size:.9rem}
.cards dt,.figures dt{font-size:.78rem;color:var(--soft)}
.cards dd{margin:0;font-size:1.35rem;font-weight:600;letter-spacing:-.01em}
.cards dd.missing{font-size:.95rem;font-weight:400;color:var(--soft);padding-top:6px}
.figures{display:flex;flex-wrap:wrap;gap:4px 24px;margin:6px 0 8px}
.figures dd{margin:0;font-weight:600}
.figures div{min-width:0}
figure{margin:0 0 30px}
figcaption p{margin:0 0 4px;color:var(--soft)}
figure>svg{display:block;width:100%;height:auto;overflow:visible}
.marks{margin:30px 0 -22px;padding:12px 14px 4px;background:var(--panel)}
.marks p{margin:0 0 4px;font-size:.9rem}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:2px 18px;margin:0 0 6px;padding:0;
font-size:.82rem;color:var(--soft)}
.key svg{vertical-align:-2px;margin-right:6px;overflow:visible}
.wide{overflow-x:auto;margin:0 0 22px}
table{border-collapse:collapse;width:100%;font-size:.87rem;line-height:1.4}
@media screen and (max-width:720px){body{padding:18px 14px 40px}table{min-width:660px}}
caption{text-align:left;font-weight:600;font-size:.95rem;padding:0 0 6px}
th,td{overflow-wrap:break-word}
.long,td code{overflow-wrap:anywhere}
th,td{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border-bottom:1px solid var(--grid);font-weight:400}
thead th{color:var(--soft);font-size:.8rem;border-bottom:1px solid var(--rule);vertical-align:bottom}
.number{text-align:right;white-space:nowrap}.whole,thead th{white-space:nowrap}
.cellbar{display:block;width:100%;min-width:90px;height:12px;margin-top:4px}
article{margin:0 0 26px}
article h3{line-height:1.6}
article ol{margin:8px 0 0;padding-left:26px}
article li{margin:0 0 12px}
article li p{margin:0 0 2px}
.statement{color:var(--soft);font-size:.9rem;margin:2px 0 6px}
.message{font-weight:500}
.place,.evidence,.help{font-size:.88rem}
.place,.evidence{color:var(--soft)}
footer{margin-top:50px;border-top:1px solid var(--rule);padding-top:10px;font-size:.82rem;color:var(--soft)}
"""

_CHARTS = """
svg text{font-size:12.5px;fill:var(--ink)}
svg .small{font-size:11.5px;fill:var(--soft)}
svg .unit{font-size:11.5px;font-weight:600}
svg .inside{font-size:12px;fill:var(--inside);font-weight:600}
svg .halo{font-size:11.5px;paint-order:stroke;stroke:var(--paper);stroke-width:3px}
svg path{fill:none;stroke-width:1}
.grid{stroke:var(--grid)}.tick{stroke:var(--grey)}
.l0,.l1,.l2,.l3{stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}
.l0{stroke:var(--blue)}.l1{stroke:var(--red);stroke-dasharray:7 3}.l2{stroke:var(--green);stroke-dasharray:2 3}
.l3{stroke:var(--purple);stroke-dasharray:9 3 2 3}
svg .b0,svg .b1,svg .b2,svg .b3{fill-opacity:var(--wash);stroke-opacity:.3;stroke-width:.7}
svg .b0{fill:var(--blue);stroke:var(--blue)}svg .b1{fill:var(--red);stroke:var(--red)}
svg .b2{fill:var(--green);stroke:var(--green)}svg .b3{fill:var(--purple);stroke:var(--purple)}
.p0{fill:var(--blue)}.p1{fill:var(--red)}.p2{fill:var(--green)}.p3{fill:var(--purple)}
.dot{fill:var(--paper);stroke:var(--red);stroke-width:2}
svg .caret{fill:var(--ink)}
.limit{stroke:var(--red);stroke-dasharray:5 4}
.v-attempt{stroke:var(--soft);stroke-dasharray:2 3}
.v-fault{stroke:var(--red);stroke-opacity:.75}
svg .m-fault{stroke:var(--red);stroke-width:2.4}
svg .m-checkpoint{fill:var(--green)}
svg .m-failed{stroke:var(--red);stroke-width:1.5}
svg .m-notice{fill:var(--yellow)}
.s-evaluation{fill:var(--green);fill-opacity:var(--tint)}
.s-recovery{fill:var(--red);fill-opacity:var(--tint)}
.s-gap{fill:url(#hatch)}
.s-between{fill:var(--grey);fill-opacity:.3}
svg .hatching{stroke:var(--soft);stroke-width:2}
.t-attempt{fill:var(--blue)}.t-save{fill:var(--green)}.t-failed,.t-fault,.t-recovery{fill:var(--red)}
.t-evaluation{fill:var(--sky)}.t-restore{fill:var(--purple)}.t-notice{fill:var(--yellow)}.t-gap{fill:url(#hatch)}
.bar{fill:var(--blue)}.whisker{stroke:var(--ink);vector-effect:non-scaling-stroke}
"""

_PRINT = """
@page{size:A4;margin:12mm}
html{font-size:11.5px}
body{max-width:none;padding:0;font-size:1rem}
nav,.skip{display:none}
.cards{grid-template-columns:repeat(5,1fr);gap:8px 14px}
.cards dd{font-size:1.2rem}
figure{margin-bottom:14px}
.marks{margin:14px 0 -6px}
.figures{gap:2px 16px;margin:3px 0 5px}
h2{break-after:avoid;margin:20px 0 8px;padding-top:8px}h3,caption,figcaption{break-after:avoid}
figure,.cards,tr,.short,article li,.marks{break-inside:avoid}
thead{display:table-header-group}
.wide{overflow:visible}
a{color:inherit;text-decoration:none}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
"""

_GOODPUT = "".join(f"svg .g{place}{{fill:var(--{name})}}" for place, name in enumerate(_CATEGORIES))

STYLE = (
    f":root{{{_LIGHT}}}@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    f"{_PAGE}{_CHARTS}{_GOODPUT}@media print{{{_PRINT}}}"
).replace("\n", "")
"""The style sheet."""

"""The style of the static HTML views, scoped to one class.

Colours come from the front end where it has some, and are readable without: JupyterLab and
VS Code say on `body` whether their theme is dark, anything else follows the system.
"""

from __future__ import annotations

SCOPE = "agentbook-run"

_LIGHT = (
    "--ab-bg:var(--jp-layout-color0,#fff);--ab-fg:var(--jp-ui-font-color0,#1b1f24);"
    "--ab-dim:var(--jp-ui-font-color2,#5f6770);--ab-line:var(--jp-border-color2,#d7dce2);"
    "--ab-soft:var(--jp-layout-color2,#f3f5f7);"
    "--ab-ran:#0b6e4f;--ab-ran-bg:#e3f4ec;--ab-rep:#2557a7;--ab-rep-bg:#e7eefb;--ab-int:#8f5200;--ab-int-bg:#fff1dc;"
    "--ab-unk:#9a1f4d;--ab-unk-bg:#fde8f0;--ab-fen:#666d76"
)
_DARK = (
    "--ab-bg:var(--jp-layout-color0,#15181c);--ab-fg:var(--jp-ui-font-color0,#e8eaed);"
    "--ab-dim:var(--jp-ui-font-color2,#9aa3ad);--ab-line:var(--jp-border-color2,#343a42);"
    "--ab-soft:var(--jp-layout-color2,#1d2126);"
    "--ab-ran:#5fd3a4;--ab-ran-bg:#173328;--ab-rep:#8db4ff;--ab-rep-bg:#1b2a45;--ab-int:#f2b25c;--ab-int-bg:#3a2a12;"
    "--ab-unk:#ff8fb5;--ab-unk-bg:#3d1a29;--ab-fen:#9aa1aa"
)
_RULES = """
{background:var(--ab-bg);color:var(--ab-fg);border:1px solid var(--ab-line);border-radius:8px;max-width:1180px;
 overflow:hidden;font:13px/1.4 system-ui,-apple-system,"Segoe UI",sans-serif;text-align:left}
 *{box-sizing:border-box}
 abbr[title]{text-decoration:underline dotted;text-decoration-thickness:1px;text-underline-offset:3px;cursor:help}
 .ab-head{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:baseline;padding:9px 14px;background:var(--ab-soft);
 border-bottom:1px solid var(--ab-line)}
 .ab-head b{font-size:14px}
 .ab-state{font-weight:600;color:var(--ab-ran)}
 .ab-state.ab-alarm{color:var(--ab-unk)}
 .ab-push{flex:1}
 .ab-dim,.ab-legend,.ab-words{color:var(--ab-dim)}
 .ab-legend{display:flex;flex-wrap:wrap;gap:3px 16px;padding:6px 14px;font-size:12px;
 border-bottom:1px solid var(--ab-line)}
 .ab-legend i{font-style:normal;font-weight:600;color:var(--ab-fen)}
 .ab-legend i.ab-of-ran,.ab-legend i.ab-of-reran,.ab-legend i.ab-of-recorded{color:var(--ab-ran)}
 .ab-legend i.ab-of-replayed,.ab-legend i.ab-of-running{color:var(--ab-rep)}
 .ab-legend i.ab-of-interrupted{color:var(--ab-int)}
 .ab-legend i.ab-of-unknown,.ab-legend i.ab-of-error{color:var(--ab-unk)}
 .ab-turn{padding:9px 14px 11px;border-bottom:1px solid var(--ab-line);margin:0}
 .ab-title{margin:0 0 4px;font-size:12.5px;font-weight:600;color:var(--ab-dim)}
 .ab-title em,summary em{font-style:normal;color:var(--ab-fg)}
 summary{cursor:pointer;font-size:12.5px;color:var(--ab-dim)}
 summary:focus-visible{outline:2px solid var(--ab-rep);outline-offset:2px}
 .ab-lines{margin:6px 0 0;padding:0 0 0 18px;list-style:none;font-size:12px;color:var(--ab-dim)}
 .ab-scroll{overflow-x:auto}
 table.ab-grid{border-collapse:separate;border-spacing:7px 4px;margin:0 0 0 -7px;border:0;width:auto;
 font-size:13px;table-layout:fixed}
 table.ab-grid tbody tr:nth-child(n){background:none}
 table.ab-grid tr>*{text-align:left;vertical-align:top;padding:0;border:0;background:none;font-weight:400;
 max-width:none;white-space:normal;line-height:1.3}
 table.ab-grid th.ab-pos{font-size:11px;color:var(--ab-dim);padding-left:2px;width:176px}
 table.ab-grid th.ab-who{position:sticky;left:0;background:var(--ab-bg);border-left:3px solid var(--ab-fen);
 padding:5px 8px;width:198px;z-index:1;overflow-wrap:anywhere}
 table.ab-grid th.ab-who.ab-live{border-left-color:var(--ab-ran)}
 .ab-who b,.ab-chip b{font-weight:600}
 .ab-who small,.ab-chip small{display:block;font-size:11.5px}
 .ab-who small{color:var(--ab-dim);font-size:11px}
 table.ab-grid td.ab-chip{border:1.5px solid;border-radius:6px;padding:4px 8px;height:42px;
 overflow-wrap:anywhere}
 table.ab-grid td.ab-ran,table.ab-grid td.ab-reran,table.ab-grid td.ab-recorded{border-color:var(--ab-ran);
 background:var(--ab-ran-bg);color:var(--ab-ran)}
 table.ab-grid td.ab-reran{border-style:double;border-width:3px}
 table.ab-grid td.ab-recorded{background:none}
 table.ab-grid td.ab-replayed{border-color:var(--ab-rep);border-style:dashed;color:var(--ab-rep)}
 table.ab-grid td.ab-interrupted{border-color:var(--ab-int);background:var(--ab-int-bg);color:var(--ab-int)}
 table.ab-grid td.ab-unknown,table.ab-grid td.ab-error{border-color:var(--ab-unk);color:var(--ab-unk);
 background:repeating-linear-gradient(45deg,var(--ab-unk-bg),var(--ab-unk-bg) 6px,transparent 6px,transparent 12px)}
 table.ab-grid td.ab-error{background:var(--ab-unk-bg)}
 table.ab-grid td.ab-running{border-color:var(--ab-rep);color:var(--ab-fg);background:var(--ab-rep-bg)}
 table.ab-grid td.ab-next,table.ab-grid td.ab-waiting,table.ab-grid td.ab-fenced{border-color:var(--ab-fen);
 border-style:dotted;color:var(--ab-dim)}
 table.ab-grid td.ab-cursor{box-shadow:0 0 0 3px color-mix(in srgb,var(--ab-rep) 40%,transparent)}
 table.ab-grid td.ab-mark{vertical-align:middle;padding-left:4px;font-size:12px;color:var(--ab-dim)}
 table.ab-grid td.ab-commit{color:var(--ab-ran)}
 table.ab-grid td.ab-died,table.ab-grid td.ab-failed,table.ab-grid td.ab-fence-mark{color:var(--ab-unk)}
 table.ab-grid td.ab-more{vertical-align:middle;color:var(--ab-dim);font-size:12px}
 table.ab-grid td.ab-fence{color:var(--ab-unk);font-size:11.5px;padding:2px 0}
 table.ab-grid td.ab-fence.ab-closed{color:var(--ab-dim)}
 .ab-fence>span{display:flex;align-items:center;gap:8px;white-space:nowrap}
 .ab-fence>span:before,.ab-fence>span:after{content:"";border-top:1.5px solid currentColor;flex:1 0 24px;
 opacity:.55}
 .ab-fence>span:before{flex:0 0 24px}
 .ab-words{padding:7px 14px;font-size:12px}
 .ab-words dl{margin:6px 0 0;display:grid;grid-template-columns:max-content 1fr;gap:2px 12px}
 .ab-words dt{font-weight:600;color:var(--ab-fg)}
 .ab-words dd{margin:0}
"""


def stylesheet() -> str:
    """The rules, each under the scope."""
    scope = f".{SCOPE}"
    dark_theme = 'body:is([data-jp-theme-light="false"],.vscode-dark,.vscode-high-contrast)'
    light_theme = 'body:is([data-jp-theme-light="true"],.vscode-light)'
    rules = [f"{scope}{{{_LIGHT}}}"]
    rules.append(f"@media (prefers-color-scheme:dark){{:root:not(:has({light_theme})) {scope}{{{_DARK}}}}}")
    rules.append(f"{dark_theme} {scope}{{{_DARK}}}")
    for rule in _RULES.replace("\n ", "\n").strip().split("}\n"):
        selectors, _, body = rule.partition("{")
        scoped = ",".join(f"div{scope} {one}" if one else f"div{scope}" for one in selectors.split(","))
        rules.append(f"{scoped}{{{body.replace(chr(10), '').removesuffix('}')}}}")
    return "".join(rules)

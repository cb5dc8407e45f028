"""Style and script of the HTML report. The script reads numbers from attributes alone, never recorded text."""
from __future__ import annotations

STYLE = """
:root{--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#d1d9e0;--link:#0550ae;--here:#fff0b3;--kin:#dbeafe}
@media(prefers-color-scheme:dark){:root{--bg:#0f1419;--fg:#dde3ea;--dim:#9aa5b1;--line:#333c47;--link:#79b8ff;
--here:#5c4a00;--kin:#123a63}}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
nav{position:sticky;top:0;background:var(--bg);border-bottom:1px solid var(--line);padding:.5em 1em;z-index:1}
nav a,nav span{margin-left:1em}nav span{color:var(--dim)}a{color:var(--link);text-decoration:none}
a:hover,a:focus{text-decoration:underline}main{padding:0 1em 6em}h2{font-size:1.1em;margin:1.6em 0 .4em}
section{scroll-margin-top:3em}summary{cursor:pointer;padding:.2em 0}small,p{color:var(--dim)}
pre{font:13px/1.45 ui-monospace,monospace;margin:.2em 0 .8em;border-left:2px solid var(--line);padding-left:.6em;
overflow-x:auto;counter-reset:l}
pre.p{white-space:pre-wrap}pre i{font-style:normal;display:block;min-width:max-content}pre.p i{min-width:0}
pre.n i::before{counter-increment:l;content:counter(l);display:inline-block;width:4ch;margin-right:1ch;
text-align:right;color:var(--dim);user-select:none}
i[data-r],i[data-o]{cursor:pointer}i.here{background:var(--here);outline:1px solid currentColor}
i.kin{background:var(--kin);outline:1px dashed currentColor}
table{border-collapse:collapse;font-size:14px}td,th{text-align:left;padding:.1em .8em .1em 0;
border-bottom:1px solid var(--line)}td b{display:inline-block;height:.8em}
.t0{background:#0969da}.t1{background:#8250df}.t2{background:#bf8700}.t3{background:#1a7f37}.t4{background:#cf222e}
.t5{background:#57606a}.t6{background:#bc4c00}
""".strip()

SCRIPT = """
const up=new Map(),down=new Map(),at=new Map();
for(const e of document.querySelectorAll('i[data-r],i[data-o]')){
 const r=e.dataset.r,o=(e.dataset.o||'').split(' ').filter(Boolean);
 if(r){if(!at.has(r))at.set(r,[]);at.get(r).push(e);
  if(!up.has(r))up.set(r,new Set());
  for(const x of o){up.get(r).add(x);if(!down.has(x))down.set(x,new Set());down.get(x).add(r);}}
}
function walk(start,edges){const seen=new Set(start),todo=[...start];
 while(todo.length)for(const x of edges.get(todo.pop())||[])if(!seen.has(x)){seen.add(x);todo.push(x);}return seen;}
function light(e){
 for(const x of document.querySelectorAll('i.here,i.kin'))x.classList.remove('here','kin');
 const own=e.dataset.r?[e.dataset.r]:(e.dataset.o||'').split(' ').filter(Boolean);
 const kin=new Set([...walk(own,up),...walk(own,down)]);
 for(const r of kin)for(const x of at.get(r)||[])x.classList.add('kin');
 e.classList.add('here');
}
document.addEventListener('click',c=>{const e=c.target.closest('i[data-r],i[data-o]');if(e)light(e);});
""".strip()

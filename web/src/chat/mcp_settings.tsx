// The switch for tools of MCP servers in a chat, and what there is of them.
import { changeSettings, open } from "../state/conversations";
import { isStarting, mcpProblem, mcpServers, startMcpServers } from "../state/mcp";

export function McpSettings() {
  const isOn = open.value.settings.mcp === true;
  const turn = (mcp: boolean) => {
    changeSettings({ mcp });
    if (mcp) void startMcpServers();
  };
  return (
    <fieldset class="wide">
      <label>
        <input type="checkbox" checked={isOn} onChange={(event) => turn(event.currentTarget.checked)} /> Let the model use MCP servers. Each call is asked for.
      </label>
      {isOn && isStarting.value && <p class="hint">Starting the servers…</p>}
      {isOn && mcpProblem.value && <p class="problem">{mcpProblem.value}</p>}
      {isOn && mcpServers.value?.length === 0 && !mcpProblem.value && <p class="hint">There are none: the file mcp.json in the server's data folder names them.</p>}
      {isOn && mcpServers.value?.map(({ name, error, tools, left_out }) => (
        <div key={name}>
          {error === null ? <p class="hint">{name}: {tools.map(({ tool }) => tool).join(", ") || "no tools"}</p> : <p class="problem">{name} {error}</p>}
          {left_out.map(({ tool, reason }) => (
            <p key={tool} class="hint">
              {tool} is left out: it {reason}.
            </p>
          ))}
        </div>
      ))}
    </fieldset>
  );
}

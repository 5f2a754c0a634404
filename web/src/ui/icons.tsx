// Line icons. Their buttons carry the labels.
const PATHS = {
  chat: "M4 5h16v11H9l-5 4z",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  playground: "M8 4c-3 0-3 2-3 4s0 4-2 4c2 0 2 2 2 4s0 4 3 4M16 4c3 0 3 2 3 4s0 4 2 4c-2 0-2 2-2 4s0 4-3 4",
  batches: "M9 6h11M9 12h11M9 18h11M4 6l1 1 2-2M4 12l1 1 2-2M4 18h2",
  server: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  plus: "M12 5v14M5 12h14",
  send: "M12 20V5M5 12l7-7 7 7",
  stop: "M7 7h10v10H7z",
  attach: "M20 11l-8 8a5 5 0 01-7-7l8-8a3.4 3.4 0 015 5l-8 8a1.7 1.7 0 01-2.400-2.400l7-7",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4.500v5M6 14.500v5",
  menu: "M4 6h16M4 12h16M4 18h16",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  pin: "M9 4h6l-1 6 3 4H7l3-4zM12 14v6",
  edit: "M4 20l1-5L16 4l4 4L9 19z",
  again: "M20 12a8 8 0 11-2.500-5.800M20 3v4h-4",
  close: "M6 6l12 12M18 6L6 18",
  light: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.400 1.400M17.600 17.600L19 19M5 19l1.400-1.400M17.600 6.400L19 5",
  dark: "M20 14A8 8 0 0110 4a8 8 0 1010 10z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}

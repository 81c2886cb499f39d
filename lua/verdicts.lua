-- What a limit says of a request.
local DENIED, ALLOWED, NEVER = 0, 1, 2

